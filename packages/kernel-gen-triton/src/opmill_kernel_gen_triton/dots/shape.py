"""How much of a product one program does, and what else may be tried by running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opmill_graph_ir.loops.ir import Load

from .. import walk
from ..budget import DotShape
from ..emit.types import TYPES
from .match import LEAST, Dot

SHAPES = (
    DotShape(128, 256, 64, 8, 4),
    DotShape(128, 256, 64, 8, 3),
    DotShape(128, 128, 64, 8, 3),
    DotShape(128, 128, 64, 4, 3),
    DotShape(128, 64, 64, 4, 4),
    DotShape(64, 128, 64, 4, 4),
    DotShape(64, 128, 128, 4, 3),
    DotShape(64, 64, 64, 4, 4),
    DotShape(64, 64, 128, 4, 3),
    DotShape(64, 32, 128, 4, 4),
    DotShape(32, 64, 128, 4, 4),
    DotShape(32, 32, 256, 4, 3),
    DotShape(16, 64, 128, 4, 4),
    DotShape(16, 32, 256, 4, 4),
    DotShape(16, 32, 512, 4, 3),
)
"""What measuring tries: each is the quickest of some product, or close to it (35 shapes, 14 products, an H200)."""
_OF_BYTES = (DotShape(16, 16, 256, 2, 5), DotShape(32, 16, 256, 4, 4), DotShape(64, 16, 256, 4, 3))
"""For few rows, of a matrix that is made of one byte an element: reading it is all there is to it, by several programs a multiprocessor."""
_FLOATS = (
    DotShape(32, 64, 32, 4, 3),
    DotShape(32, 32, 64, 4, 3),
    DotShape(16, 32, 64, 4, 3),
    DotShape(16, 16, 64, 2, 3),
)
"""Of float32, which takes two parts of each value: registers are what there is least of. Microseconds on an H100, of 1,024 cubed, and of
192 times 256 x 256 x 64 where heads lie innermost: 53 and 124 with 32 x 64, 52 and 123 with 128 x 64, 71 and 139 with 64 x 64, 110 and
226 with 64 x 128 (four warps); 7,235 and 409 as sums."""
OF_FLOATS = (*_FLOATS, DotShape(128, 64, 32, 8, 3), DotShape(64, 32, 32, 4, 3))
"""What measuring tries of float32."""
_MOST_WORK = 0.9
"""Of the multiprocessors, that should have a program."""


def shape_of(dot: Dot, sizes: Mapping[str, int], processors: int) -> DotShape:
    """The largest tile of which there are enough for all multiprocessors."""
    rows, columns, batch = (walk.points(axes, sizes) for axes in (dot.rows, dot.columns, dot.batch))

    def programs(shape: DotShape) -> int:
        return batch * -(-rows // shape.rows) * -(-columns // shape.columns)

    if _of_bytes(dot) and rows <= _OF_BYTES[-1].rows:
        return clipped(next(s for s in _OF_BYTES if rows <= s.rows), dot, sizes)
    if dot.dtype == "float32":
        return clipped(_fitting(_FLOATS, rows, columns)[0], dot, sizes)
    fitting = _fitting(SHAPES, rows, columns)
    found = max(fitting, key=lambda s: (min(programs(s), _MOST_WORK * processors), s.rows * s.columns, -SHAPES.index(s)))
    return clipped(found, dot, sizes)


def _fitting(shapes: tuple[DotShape, ...], rows: int, columns: int) -> list[DotShape]:
    """Those of which no more than half is filled up; the last one where there are none."""
    return [s for s in shapes if s.rows < 2 * max(rows, LEAST) and s.columns < 2 * max(columns, LEAST)] or list(shapes[-1:])


def _of_bytes(dot: Dot) -> bool:
    """Whether what varies along columns is read as single bytes."""
    loads = [e for e in walk.inside(dot.b) if type(e) is Load and e.index.symbols & {a.name for a in dot.columns}]
    return any(TYPES[e.dtype].size == 1 and e.index.symbols & {a.name for a in dot.inner} for e in loads)


def clipped(shape: DotShape, dot: Dot, sizes: Mapping[str, int]) -> DotShape:
    """With no more depth than there is."""
    depth = shape.depth
    while depth > LEAST and depth // 2 >= walk.points(dot.inner, sizes):
        depth //= 2
    return replace(shape, depth=depth)


__all__ = ["OF_FLOATS", "SHAPES", "clipped", "shape_of"]
