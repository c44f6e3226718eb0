"""Sums of products of bytes, in integers of four: neighbouring products are added by the instruction that multiplies them, exactly.

A lane of the sum takes four products at a step. Lanes of their own would take many times as many instructions, among them the slow product
of integers of four bytes."""

from __future__ import annotations

from collections.abc import Callable

from opmill_graph_ir.loops.index import ONE
from opmill_graph_ir.loops.ir import Expr, Load, Nest, Op, Phase

from .block import Block
from .body import Body, Value
from .index_text import index_text
from .memory import load
from .needs import Needs
from .widths import resized

_LEAST = 64
"""Products of a sum from which on whole vectors are worth it."""


def is_of_bytes(nest: Nest) -> bool:
    """Whether the one phase with inner axes of a nest is such sums, along memory."""
    inner = [p for p in nest.phases if p.axes]
    if len(inner) != 1 or len(inner[0].axes) != 1:
        return False
    [phase] = inner
    if not phase.reductions or phase.lets or phase.checks or phase.stores or phase.scans or (phase.axes[0].extent.constant or 0) < _LEAST:
        return False
    lets = {let.name for p in nest.phases for let in p.lets}
    return all(r.op == "sum" and r.dtype == "int32" and _loads(r.value, phase.axes[0].name, lets) for r in phase.reductions)


def _loads(value: Expr, axis: str, lets: set[str]) -> tuple[Load, Load] | None:
    """The two elements that are multiplied, where they lie along the sum."""
    if not isinstance(value, Op) or value.name != "mul" or value.dtype != "int32":
        return None
    loads = []
    for arg in value.args:
        e = arg.args[0] if isinstance(arg, Op) and arg.name == "cast" else None
        if not isinstance(e, Load) or e.dtype != "int8" or e.mask is not None or e.index.stride_of(axis) != ONE or e.index.symbols & lets:
            return None
        loads.append(e)
    return loads[0], loads[1]


def write_sums(body: Body, phase: Phase) -> None:
    """All sums of the phase at the open point, each by its name afterwards: whole vectors, then what is left one by one."""
    point, needs = body.block, body.needs
    [axis] = phase.axes
    pairs = [found for r in phase.reductions if (found := _loads(r.value, axis.name, set())) is not None]
    lanes, depth, at = body.target.bits // 32, axis.extent.constant or 0, f"i_{axis.name}"
    step, (added_to, added), zeros = 4 * lanes, _helpers(needs, lanes), f"{needs.vector('i32', lanes)}{{}}"
    sums, totals = ([body.fresh("acc") for _ in pairs] for _ in range(2))
    point.lines += [f"auto {name} = {zeros};" for name in sums]
    point.add(f"long {at} = 0;")
    whole = point.nested(f"for (; {at} + {step} <= {depth}; {at} += {step})")
    body.bind_axis(axis.name, at, whole)
    taken = load(needs, "i8", step)
    read = {e: _read(body, whole, e, lambda where: f"{taken}({where})") for e in _distinct(pairs)}
    whole.lines += [f"{name} = {added_to}({name}, {read[a]}, {read[b]});" for name, (a, b) in zip(sums, pairs, strict=True)]
    whole.close()
    point.lines += [f"int {total} = {added}({name});" for total, name in zip(totals, sums, strict=True)]
    if depth % step:
        rest = point.nested(f"for (; {at} < {depth}; ++{at})")
        read = {e: _read(body, rest, e, lambda where: f"(int)*({where})") for e in _distinct(pairs)}
        rest.lines += [f"{total} += {read[a]} * {read[b]};" for total, (a, b) in zip(totals, pairs, strict=True)]
        rest.close()
    body.names.pop(axis.name)
    body.homes.pop(axis.name)
    for r, total in zip(phase.reductions, totals, strict=True):
        body.results[r.names[0], body.copy] = Value(total, False), point


def _distinct(pairs: list[tuple[Load, Load]]) -> dict[Load, None]:
    return dict.fromkeys(e for pair in pairs for e in pair)


def _read(body: Body, block: Block, e: Load, text: Callable[[str], str]) -> str:
    name = body.fresh()
    block.add(f"const auto {name} = {text(f'p_{e.buffer} + {index_text(e.index, body.names, body.extents, body.needs)}')};")
    return name


def _helpers(needs: Needs, lanes: int) -> tuple[str, str]:
    """Functions of vectors: a sum with the products of four bytes added to each lane, and the sum of all lanes."""
    v, bytes_, half = needs.vector("i32", lanes), needs.vector("i8", 4 * lanes), needs.vector("i8", 2 * lanes)
    words = needs.vector("i16", 2 * lanes)
    first, second = (", ".join(map(str, range(k, k + 2 * lanes))) for k in (0, 2 * lanes))
    widened = resized(needs, "h", "i8", "i16", 2 * lanes)
    needs.add(f"words_{words}", f"static inline {words} words_{words}({half} h) {{ return {widened}; }}")
    halves = [f"words_{words}(__builtin_shufflevector({n}, {n}, {order}))" for order in (first, second) for n in "xy"]
    pairs = _pairs(needs, lanes)
    text = f"return sum + {pairs}({halves[0]}, {halves[1]}) + {pairs}({halves[2]}, {halves[3]});"
    if needs.family == "x86" and lanes == 16:
        text = f"\n#if defined(__AVX512VNNI__) && !defined(__clang__)\n{_FOURS}\n#else\n  {text}\n#endif\n"
    needs.add(f"fours_{v}", f"static inline {v} fours_{v}({v} sum, {bytes_} x, {bytes_} y) {{ {text} }}")
    lines, width = [], lanes // 2
    while width:
        lines.append(f"x += __builtin_shufflevector(x, x, {', '.join(str((k + width) % lanes) for k in range(lanes))});")
        width //= 2
    return f"fours_{v}", needs.add(f"added_{v}", f"static inline int added_{v}({v} x) {{ {' '.join(lines)} return x[0]; }}")


def _pairs(needs: Needs, lanes: int) -> str:
    """A function of vectors: the sums of neighbouring products, in lanes twice as wide."""
    v, words = needs.vector("i32", lanes), needs.vector("i16", 2 * lanes)
    text = f"{v} r; for (int l = 0; l < {lanes}; ++l) r[l] = x[2 * l] * y[2 * l] + x[2 * l + 1] * y[2 * l + 1]; return r;"
    if needs.family == "x86" and lanes in _PAIRS:
        condition, call = _PAIRS[lanes]
        text = f"\n#if {condition} && !defined(__clang__)\n  return ({v}){call};\n#else\n  {text}\n#endif\n"
    return needs.add(f"pairs_{v}", f"static inline {v} pairs_{v}({words} x, {words} y) {{ {text} }}")


_PAIRS = {
    4: ("defined(__SSE2__)", "__builtin_ia32_pmaddwd128(x, y)"),
    8: ("defined(__AVX2__)", "__builtin_ia32_pmaddwd256(x, y)"),
    16: ("defined(__AVX512BW__)", "__builtin_ia32_pmaddwd512_mask(x, y, i32x16{}, -1)"),
}
"""The instruction, by lanes of its result, and where it is."""
_FOURS = """  const i32x16 high = i32x16{} + (int)0x80808080;
  const i32x16 much = __builtin_ia32_vpdpbusd_v16si(i32x16{}, high, (i32x16)x);
  return __builtin_ia32_vpdpbusd_v16si(sum, (i32x16)y ^ high, (i32x16)x) - much;"""
"""One factor of that instruction has no sign: it is taken 128 higher, and 128 times the other one off again (which is computed once for
all that ``x`` is multiplied with)."""
