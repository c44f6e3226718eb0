"""Helpers that move vectors between memory and registers."""

from __future__ import annotations

from ..target import Target
from .needs import Needs
from .types import C_OF_SHORT, vector


def load(needs: Needs, short: str, lanes: int) -> str:
    """The name of a function that loads a vector from anywhere."""
    v, c = needs.vector(short, lanes), C_OF_SHORT[short][0]
    return needs.add(f"load_{v}", f"static inline {v} load_{v}(const {c}* p) {{ return *(const {v}u*)p; }}")


_MASKED = {(4, 4): "ps", (2, 8): "pd", (8, 4): "ps256", (4, 8): "pd256"}
"""Suffix of the instructions that load and store under a mask: (lanes, bytes a lane)."""


def _first_lanes(needs: Needs, short: str, lanes: int, target: Target) -> tuple[str, str, str] | None:
    """Suffix, vector type and mask for the first ``n`` lanes, where there are such instructions."""
    size = C_OF_SHORT[short][1]
    if (lanes, size) not in _MASKED or lanes * size * 8 > target.bits or target.name not in ("avx2", "avx512"):
        return None
    floats, integers = needs.vector("f32" if size == 4 else "f64", lanes), "i32" if size == 4 else "i64"
    return _MASKED[lanes, size], floats, f"{iota(needs, integers, lanes)} < n"


_CHOSEN = {"f4": ("ups", "float"), "f8": ("upd", "double"), "8": ("dqudi", "long long"), "4": ("dqusi", "int"), "2": ("dquhi", "short"),
           "1": ("dquqi", "char")}  # fmt: skip
"""AVX-512's loads and stores of chosen lanes, for each kind and size of element: the name, and the type that it is called with."""


def _chosen_lanes(short: str, lanes: int, target: Target) -> tuple[str, str, str, str] | None:
    """Where lanes are chosen by the bits of a number: the load's and the store's name, a typedef of ``w``, a vector as they want it, and
    its element."""
    size = C_OF_SHORT[short][1]
    if target.name != "avx512" or not 128 <= 8 * size * lanes <= 512:
        return None
    name, element = _CHOSEN[f"f{size}" if short.startswith("f") else str(size)]
    load_call, store_call = (f"__builtin_ia32_{way}{name}{8 * size * lanes}_mask" for way in ("load", "store"))
    return load_call, store_call, f"typedef {element} w __attribute__((vector_size({size * lanes})));", element


def load_part(needs: Needs, short: str, lanes: int, target: Target) -> str:
    """The first ``n`` lanes from memory, zeros after them."""
    v, (c, size) = needs.vector(short, lanes), C_OF_SHORT[short]
    if (chosen := _chosen_lanes(short, lanes, target)) is not None:
        call, _, typedef, element = chosen
        text = f"{typedef} return ({v}){call}((const {element}*)p, w{{}}, (1u << n) - 1);"
    elif (found := _first_lanes(needs, short, lanes, target)) is not None:
        text = f"return ({v})__builtin_ia32_maskload{found[0]}((const {found[1]}*)p, {found[2]});"
    else:
        text = f"{v} r = {{}}; __builtin_memcpy(&r, p, n * {size}); return r;"
    return needs.add(f"load_part_{v}", f"static inline {v} load_part_{v}(const {c}* p, int n) {{ {text} }}")


def store(needs: Needs, short: str, lanes: int) -> str:
    """The name of a function that stores a vector anywhere."""
    v, c = needs.vector(short, lanes), C_OF_SHORT[short][0]
    return needs.add(f"store_{v}", f"static inline void store_{v}({c}* p, {v} x) {{ *({v}u*)p = x; }}")


def store_part(needs: Needs, short: str, lanes: int, target: Target) -> str:
    """The name of a C function that stores the first ``n`` of ``lanes`` elements; it is defined where it is needed."""
    v, (c, size) = needs.vector(short, lanes), C_OF_SHORT[short]
    text = f"__builtin_memcpy(p, &x, n * {size});"
    if (chosen := _chosen_lanes(short, lanes, target)) is not None:
        _, call, typedef, element = chosen
        text = f"{typedef} {call}(({element}*)p, (w)x, (1u << n) - 1);"
    elif (found := _first_lanes(needs, short, lanes, target)) is not None:  # a call of memcpy otherwise, but for known n
        text = f"if (__builtin_constant_p(n)) {text} else __builtin_ia32_maskstore{found[0]}(({found[1]}*)p, {found[2]}, ({found[1]})x);"
    return needs.add(f"store_part_{v}", f"static inline void store_part_{v}({c}* p, {v} x, int n) {{ {text} }}")


def strided(needs: Needs, short: str, lanes: int, stride: int | str) -> str:
    """Lanes ``s`` elements apart. A few elements: whole vectors are read, and lanes picked of them; backwards: one that is turned round."""
    v, c = needs.vector(short, lanes), C_OF_SHORT[short][0]
    if stride == -1:
        order = ", ".join(map(str, range(lanes - 1, -1, -1)))
        text = f"const {v} x = *(const {v}u*)(p - {lanes - 1}); return __builtin_shufflevector(x, x, {order});"
        return needs.add(f"backwards_{v}", f"static inline {v} backwards_{v}(const {c}* p, long) {{ {text} }}")
    if stride in PICKED:
        assert type(stride) is int
        name = f"strided_{v}_{stride}"
        return needs.add(name, f"static inline {v} {name}(const {c}* p, long) {{\n{_picked(v, lanes, stride)}\n  return r0; }}")
    lanes_text = ", ".join(f"p[{k} * s]" if k else "p[0]" for k in range(lanes))
    return needs.add(f"strided_{v}", f"static inline {v} strided_{v}(const {c}* p, long s) {{ return ({v}){{{lanes_text}}}; }}")


PICKED = (2, 3, 4)
"""Steps up to which vectors are read as they lie in memory."""


def _picked(v: str, lanes: int, stride: int) -> str:
    """Statements that put every ``stride``-th element from ``p`` on into ``r0``. The last vector ends with the last of them."""
    last, lines = (lanes - 1) * stride, []
    starts = [min(k * lanes, last - lanes + 1) for k in range(stride)]
    for k, start in enumerate(starts):
        lines.append(f"  {'const ' if k else ''}{v} r{k} = *(const {v}u*)(p + {start});")
    for k in range(1, stride):
        known, end, picks = starts[k - 1] + lanes, starts[k] + lanes, []
        for lane in range(lanes):
            at = lane * stride
            if at < known:  # in r0: as it was read, before the first step
                picks.append(at if k == 1 else lane)
            else:
                picks.append(lanes + at - starts[k] if at < end else lane)
        lines.append(f"  r0 = __builtin_shufflevector(r0, r{k}, {', '.join(map(str, picks))});")
    return "\n".join(lines)


def neighbours(needs: Needs, short: str, offsets: tuple[int, ...], target: Target) -> str:
    """Lanes so many elements from the first: these are read once, and repeated. (Of shorter vectors GCC makes longer ones lane by lane.)"""
    v, part, c = needs.vector(short, len(offsets)), load_part(needs, short, len(offsets), target), C_OF_SHORT[short][0]
    name = f"neighbours_{v}_{''.join(f'{n:x}' for n in offsets)}"
    picked = f"__builtin_shufflevector(x, x, {', '.join(map(str, offsets))})"
    return needs.add(name, f"static inline {v} {name}(const {c}* p) {{ const {v} x = {part}(p, {max(offsets) + 1}); return {picked}; }}")


_GATHERED = {("f", 4): ("gatherdiv16sf", "float"), ("f", 8): ("gatherdiv8df", "double"), ("i", 4): ("gatherdiv16si", "int"),
             ("i", 8): ("gatherdiv8di", "long long")}  # fmt: skip
"""AVX-512's instructions that read eight elements at positions of 64 bits: by kind and size of these."""


def gather(needs: Needs, short: str, lanes: int, target: Target) -> str | None:
    """The name of a function that reads lanes at positions that a vector of int64 has, where there is an instruction for it: half the time
    of taking the positions one by one."""
    v, (c, size) = needs.vector(short, lanes), C_OF_SHORT[short]
    if target.name != "avx512" or lanes != 8 or size < 4:
        return None
    call, element = _GATHERED["f" if short.startswith("f") else "i", size]
    i = needs.vector("i64", lanes)
    text = (
        f"typedef {element} w __attribute__((vector_size({size * lanes}))); typedef long long j __attribute__((vector_size(64)));"
        f" return ({v})__builtin_ia32_{call}(w{{}}, p, (j)at, -1, {size});"
    )
    return needs.add(f"gather_{v}", f"static inline {v} gather_{v}(const {c}* p, {i} at) {{ {text} }}")


def square(needs: Needs, short: str, lanes: int) -> str:
    """As many vectors as lanes, ``s`` elements apart in memory, as if read across: rows and columns exchanged in halves, quarters and so
    on."""
    v, c = needs.vector(short, lanes), C_OF_SHORT[short][0]
    lines, step = [f"  for (int k = 0; k < {lanes}; ++k) r[k] = *(const {v}u*)(p + k * s);"], lanes // 2
    while step:
        low = ", ".join(str(lanes + k - step if k & step else k) for k in range(lanes))
        high = ", ".join(str(lanes + k if k & step else k + step) for k in range(lanes))
        for k in range(lanes):
            if not k & step:
                one, other = f"r[{k}]", f"r[{k + step}]"
                lines.append(
                    f"  {{ const {v} a = {one}, b = {other}; {one} = __builtin_shufflevector(a, b, {low}); "
                    f"{other} = __builtin_shufflevector(a, b, {high}); }}"
                )
        step //= 2
    text = "\n".join([f"static inline void square_{v}(const {c}* p, long s, {v}* r) {{", *lines, "}"])
    return needs.add(f"square_{v}", text)


def strided_part(needs: Needs, short: str, lanes: int) -> str:
    """The name of a function that loads the first lanes of a vector, a step apart from each other; the others are zero."""
    v, c = needs.vector(short, lanes), C_OF_SHORT[short][0]
    return needs.add(
        f"strided_part_{v}",
        f"static inline {v} strided_part_{v}(const {c}* p, long s, int n) "
        f"{{ const {c} z = 0; {v} r; {each_lane(str(lanes), 'r[l] = *(l < n ? p + l * s : &z);')} return r; }}",
    )


def store_strided(needs: Needs, short: str, lanes: int) -> str:
    """Lanes to places ``s`` elements apart."""
    v, c = needs.vector(short, lanes), C_OF_SHORT[short][0]
    each = " ".join(f"p[{k} * s] = x[{k}];" for k in range(lanes))
    return needs.add(f"store_strided_{v}", f"static inline void store_strided_{v}({c}* p, long s, {v} x) {{ {each} }}")


def iota(needs: Needs, short: str, lanes: int) -> str:
    """The name of the vector 0, 1, 2, ..."""
    v = needs.vector(short, lanes)
    return needs.add(f"iota_{v}", f"static const {v} iota_{v} = {{{', '.join(map(str, range(lanes)))}}};")


_SIGNS = {
    (4, 4): "movmskps((f32x4)m)",
    (2, 8): "movmskpd((f64x2)m)",
    (8, 4): "movmskps256((f32x8)m)",
    (4, 8): "movmskpd256((f64x4)m)",
}
"""Sign bits of all lanes by one instruction: (lanes, bytes a lane)."""


_BITS = {(4, 4): "d2mask128", (2, 8): "q2mask128", (8, 4): "d2mask256", (4, 8): "q2mask256", (16, 4): "d2mask512", (8, 8): "q2mask512"}
"""The same with AVX-512."""


def _signs(needs: Needs, short: str, lanes: int, target: Target) -> str | None:
    """A number with a bit for each lane of the mask ``m``."""
    size = C_OF_SHORT[short][1]
    if target.name == "avx512" and (lanes, size) in _BITS:
        element = "int" if size == 4 else "long long"
        vectors = f"__attribute__((vector_size({size * lanes})))"
        return f"({{ typedef {element} w {vectors}; __builtin_ia32_cvt{_BITS[lanes, size]}((w)m); }})"
    if (lanes, size) not in _SIGNS or lanes * size * 8 > target.bits or target.name not in ("avx2", "avx512"):
        return None
    needs.vector("f32" if size == 4 else "f64", lanes)
    return f"__builtin_ia32_{_SIGNS[lanes, size]}"


def any_lane(needs: Needs, short: str, lanes: int, target: Target) -> str:
    """Whether a mask has any lane set, and (``all_lanes``) all."""
    v = needs.vector(short, lanes)
    text = _signs(needs, short, lanes, target) or f"({' | '.join(f'm[{k}]' for k in range(lanes))})"
    return needs.add(f"any_{v}", f"static inline bool any_{v}({v} m) {{ return {text} != 0; }}")


def all_lanes(needs: Needs, short: str, lanes: int, target: Target) -> str:
    """The name of a function: whether all lanes of a mask are set."""
    v = needs.vector(short, lanes)
    signs = _signs(needs, short, lanes, target)
    text = f"{signs} == {(1 << lanes) - 1}" if signs else f"({' & '.join(f'm[{k}]' for k in range(lanes))}) != 0"
    return needs.add(f"all_{v}", f"static inline bool all_{v}({v} m) {{ return {text}; }}")


def masked_load(needs: Needs, short: str, lanes: int, stride: int | str, mask: str, target: Target) -> str:
    """Touches only lanes whose mask is set, and makes no address of others; ``o`` elsewhere. Most masks are all true or all false."""
    v, m, (c, size) = needs.vector(short, lanes), vector(mask, lanes), C_OF_SHORT[short]
    every, some = all_lanes(needs, mask, lanes, target), any_lane(needs, mask, lanes, target)
    chosen, bits = _chosen_lanes(short, lanes, target), _signs(needs, mask, lanes, target)
    name = f"masked_load_{v}{'_back' if stride == -1 else f'_{stride}' if stride in (1, *PICKED) else ''}"
    lines = [] if stride == 1 and chosen and bits else [f"if ({every}(m)) return {_whole(needs, short, lanes, stride)};"]
    lines.append(f"if (!{some}(m)) return o;")
    if stride == 1 and chosen is not None and bits is not None:
        call, _, typedef, element = chosen
        where = f"(const {element}*)((unsigned long)p + at * {size})"  # a number: no address of what is not there
        lines.append(f"{typedef} return ({v}){call}({where}, (w)o, {bits});")
    else:
        lines += [f"const {c} x = o[0];", each_lane(str(lanes), "o[l] = *(m[l] ? p + at + l * s : &x);"), "return o;"]
    text = "\n".join(f"  {line}" for line in lines)
    return needs.add(name, f"static inline {v} {name}(const {c}* p, long at, long s, {m} m, {v} o) {{\n{text} }}")


def _whole(needs: Needs, short: str, lanes: int, stride: int | str) -> str:
    return f"{load(needs, short, lanes)}(p + at)" if stride == 1 else f"{strided(needs, short, lanes, stride)}(p + at, s)"


def each_lane(count: str, statement: str) -> str:
    """``statement`` for each lane ``l``. All are written out where their number is known: otherwise vectors go through memory, lane by
    lane."""
    unroll = f'_Pragma("GCC unroll {count}") ' if count.isdigit() else ""
    return f"{unroll}for (int l = 0; l < {count}; ++l) {statement}"
