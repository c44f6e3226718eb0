"""The loop of a product: tiles of both operands, multiplied by tensor cores and added up in float32."""

from __future__ import annotations

from opmill_graph_ir.loops.ir import Expr

from ..emit.body import Body, Lines
from ..emit.space import Group, Text, product, tiles
from .match import Dot

GROUPED = 8
"""Rows of tiles that are done together, so that what they share of both operands is still in the cache."""
_ADDED = 1024
"""Terms of float32 that units for matrices add up by themselves: they cut off what does not fit. The error of ten thousand terms so added
was five times that of sums of parts."""


def place_tiles(body: Body, lines: Lines, dot: Dot, blocks: dict[str, int], pid: str) -> list[str]:
    """The places of a program's tile along rows and columns, batch axes as numbers in ``body.names``."""
    lines.add(f"pid = {pid}")
    counts = [tiles(product(axes), blocks[name]) for axes, name in ((dot.rows, "y"), (dot.columns, "x"))]
    down, across = (body.space.scalar(t) for t in counts)
    if dot.batch:
        lines.add(f"zindex = pid // ({down} * {across})")
        lines.add(f"pid = pid % ({down} * {across})")
        batch = Group("z", dot.batch, 1, False, body.define)
        for k, axis in enumerate(dot.batch):
            body.names[axis.name] = Text(batch.run(k, k, body.space.scalar), frozenset(), True)
    lines.add(f"first = pid // ({GROUPED} * {across}) * {GROUPED}")
    lines.add(f"together = min({down} - first, {GROUPED})")
    lines.add(f"inside = pid % ({GROUPED} * {across})")
    return ["(first + inside % together)", "(inside // together)"]


def write_loop(body: Body, lines: Lines, dot: Dot, groups: list[Group], depth: int, stages: int, wide: bool) -> Text:
    """The loop over the depth; its result, a tile of rows and columns. ``groups``: those of rows and columns."""
    extent = product(dot.inner)
    masked = extent.constant is None or extent.constant % depth != 0
    in_parts = dot.dtype == "float32" and (extent.constant is None or extent.constant > _ADDED)
    loop = Lines(lines.depth + 1 + in_parts)
    rows, columns = groups
    lines.add("KBLOCK: tl.constexpr = RBLOCK")
    lines.add("total = tl.zeros([YBLOCK, XBLOCK], tl.float32)")
    a = _operand(body, lines, loop, dot, dot.a, ("r", "[None, :]"), rows, masked, wide)
    b = _operand(body, lines, loop, dot, dot.b, ("k", "[:, None]"), columns, masked, wide)
    sums, end = "part" if in_parts else "total", body.space.scalar(extent)
    exact = f', input_precision="{"ieee" if body.precise else "tf32x3"}"' if dot.dtype == "float32" else ""
    loop.add(f"{sums} = tl.dot({a.text}, {b.text}, {sums}{exact})")
    begin, until, around = "0", end, Lines(loop.depth - 1)
    if in_parts:
        lines.add(f"for begin in tl.range(0, {end}, {_ADDED}):")
        around.add("part = tl.zeros([YBLOCK, XBLOCK], tl.float32)")
        begin, until = "begin", f"tl.minimum(begin + {_ADDED}, {end})"
    around.add(f"for start in tl.range({begin}, {until}, RBLOCK, num_stages={stages}):")
    around.lines += loop.lines
    if in_parts:
        around.add("total += part")
    lines.lines += around.lines
    return Text("total", frozenset({"y", "x"}), True)


def _operand(
    body: Body, lines: Lines, loop: Lines, dot: Dot, value: Expr, inner: tuple[str, str], outer: Group, masked: bool, wide: bool
) -> Text:
    """A tile of one operand, written into the loop."""
    name, along = inner
    own = Body(2, loop, body.written, body.needs, body.names, body.values, body.precise, body.quick, zeros=True, rounds=body.rounds)

    def define(variable: str, text: str) -> str:
        loop.add(f"{variable} = {text}")
        return variable

    depth = Group(name, dot.inner, 0, masked, define, "start", along)
    own.groups = [outer, depth] if name == "r" else [depth, outer]
    own.count = 1000 if name == "r" else 2000  # names of the two operands and of what follows differ
    loop.add(f"{name}index = start + tl.arange(0, RBLOCK){'.to(tl.int64)' if wide else ''}{along}")
    if masked:
        loop.add(f"{name}mask = {name}index < {own.space.scalar(product(dot.inner))}")
    found = own.value(value)
    every = frozenset(g.name for g in own.groups)
    return Text(own.spread(found, every), every)


__all__ = ["place_tiles", "write_loop"]
