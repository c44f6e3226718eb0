"""Helpers that move vectors between memory and registers."""

from __future__ import annotations

from ..target import Target
from .needs import Needs
from .types import C_OF_SHORT, vector


def load(needs: Needs, short: str, lanes: int) -> str:
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


def load_part(needs: Needs, short: str, lanes: int, target: Target) -> str:
    """The first ``n`` lanes from memory, zeros after them."""
    v, (c, size) = needs.vector(short, lanes), C_OF_SHORT[short]
    if (found := _first_lanes(needs, short, lanes, target)) is not None:
        text = f"return ({v})__builtin_ia32_maskload{found[0]}((const {found[1]}*)p, {found[2]});"
    else:
        text = f"{v} r = {{}}; __builtin_memcpy(&r, p, n * {size}); return r;"
    return needs.add(f"load_part_{v}", f"static inline {v} load_part_{v}(const {c}* p, int n) {{ {text} }}")


def store(needs: Needs, short: str, lanes: int) -> str:
    v, c = needs.vector(short, lanes), C_OF_SHORT[short][0]
    return needs.add(f"store_{v}", f"static inline void store_{v}({c}* p, {v} x) {{ *({v}u*)p = x; }}")


def store_part(needs: Needs, short: str, lanes: int, target: Target) -> str:
    v, (c, size) = needs.vector(short, lanes), C_OF_SHORT[short]
    text = f"__builtin_memcpy(p, &x, n * {size});"
    if (found := _first_lanes(needs, short, lanes, target)) is not None:  # a call of memcpy otherwise, but for known n
        text = f"if (__builtin_constant_p(n)) {text} else __builtin_ia32_maskstore{found[0]}(({found[1]}*)p, {found[2]}, ({found[1]})x);"
    return needs.add(f"store_part_{v}", f"static inline void store_part_{v}({c}* p, {v} x, int n) {{ {text} }}")


def strided(needs: Needs, short: str, lanes: int) -> str:
    """Lanes ``s`` elements apart."""
    v, c = needs.vector(short, lanes), C_OF_SHORT[short][0]
    lanes_text = ", ".join(f"p[{k} * s]" if k else "p[0]" for k in range(lanes))
    return needs.add(f"strided_{v}", f"static inline {v} strided_{v}(const {c}* p, long s) {{ return ({v}){{{lanes_text}}}; }}")


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
    v, c = needs.vector(short, lanes), C_OF_SHORT[short][0]
    return needs.add(
        f"strided_part_{v}",
        f"static inline {v} strided_part_{v}(const {c}* p, long s, int n) "
        f"{{ {v} r = {{}}; for (int l = 0; l < n; ++l) r[l] = p[l * s]; return r; }}",
    )


def store_strided(needs: Needs, short: str, lanes: int) -> str:
    """Lanes to places ``s`` elements apart."""
    v, c = needs.vector(short, lanes), C_OF_SHORT[short][0]
    each = " ".join(f"p[{k} * s] = x[{k}];" for k in range(lanes))
    return needs.add(f"store_strided_{v}", f"static inline void store_strided_{v}({c}* p, long s, {v} x) {{ {each} }}")


def iota(needs: Needs, short: str, lanes: int) -> str:
    v = needs.vector(short, lanes)
    return needs.add(f"iota_{v}", f"static const {v} iota_{v} = {{{', '.join(map(str, range(lanes)))}}};")


_SIGNS = {
    (4, 4): "movmskps((f32x4)m)",
    (2, 8): "movmskpd((f64x2)m)",
    (8, 4): "movmskps256((f32x8)m)",
    (4, 8): "movmskpd256((f64x4)m)",
}
"""Sign bits of all lanes by one instruction: (lanes, bytes a lane)."""


def _signs(needs: Needs, short: str, lanes: int, target: Target) -> str | None:
    size = C_OF_SHORT[short][1]
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
    v = needs.vector(short, lanes)
    signs = _signs(needs, short, lanes, target)
    text = f"{signs} == {(1 << lanes) - 1}" if signs else f"({' & '.join(f'm[{k}]' for k in range(lanes))}) != 0"
    return needs.add(f"all_{v}", f"static inline bool all_{v}({v} m) {{ return {text}; }}")


def masked_load(needs: Needs, short: str, lanes: int, mask: str, target: Target) -> str:
    """Touches only lanes whose mask is set, and makes no address of others; ``o`` elsewhere. Most masks are all true or all false."""
    v, m, c = needs.vector(short, lanes), vector(mask, lanes), C_OF_SHORT[short][0]
    every, some = all_lanes(needs, mask, lanes, target), any_lane(needs, mask, lanes, target)
    return needs.add(
        f"masked_load_{v}",
        f"static inline {v} masked_load_{v}(const {c}* p, long at, long s, {m} m, {v} o) {{\n"
        f"  if (s == 1 && {every}(m)) return *(const {v}u*)(p + at);\n  if (!{some}(m)) return o;\n"
        f"  for (int l = 0; l < {lanes}; ++l) if (m[l]) o[l] = p[at + l * s];\n  return o; }}",
    )
