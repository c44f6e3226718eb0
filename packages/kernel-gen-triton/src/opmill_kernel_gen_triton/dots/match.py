"""Recognises a matrix product by its form, whatever operator it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opmill_graph_ir.loops.ir import Axis, Expr, IndexValue, Load, Nest, Op

from .. import walk
from ..emit.types import TYPES

LEAST = 16
"""Rows, columns and depth that a tensor core takes at once. Fewer rows or columns are filled up."""

_TILE = 64
"""Rows and columns of a tile of float32, about."""
_PROGRAMS = 64
"""Tiles that keep half of a large device busy."""
_SHORT = 2048
"""Terms of a sum that one program takes in some ten microseconds."""


@dataclass(frozen=True)
class Dot:
    """``result[batch, rows, columns] = sum over inner of a * b``, of two values of one type, ``dtype``, of half precision or float32: ``a``
    does not vary along ``columns``, ``b`` not along ``rows``."""

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    a: Expr
    b: Expr
    result: str

    @property
    def dtype(self) -> str:
        return self.a.dtype


def dot_of(nest: Nest, sizes: Mapping[str, int]) -> Dot | None:
    """The nest as a product, followed by whatever is done point by point; None where it is none or a small one. ``sizes``: guesses for
    symbols."""
    first, *rest = nest.phases
    if len(first.reductions) != 1 or first.lets or first.checks or first.stores or first.scans or any(p.axes or p.checks for p in rest):
        return None
    [reduction] = first.reductions
    value = reduction.value
    if reduction.op != "sum" or reduction.dtype != "float32" or type(value) is not Op or value.name != "mul" or walk.indirect(nest):
        return None
    operands = [half for x in value.args if (half := _half(x)) is not None]
    if len(operands) == len(value.args) and operands[0].dtype == operands[1].dtype:
        return _arranged(nest, operands, reduction.names[0], sizes)
    found = _arranged(nest, list(value.args), reduction.names[0], sizes)
    return found if found is not None and _pays(found, sizes) else None


def _pays(dot: Dot, sizes: Mapping[str, int]) -> bool:
    """Whether a product of float32 fills tiles, and has enough of them: sums over many terms are otherwise split over programs."""
    rows, columns, batch, depth = (walk.points(axes, sizes) for axes in (dot.rows, dot.columns, dot.batch, dot.inner))
    tiles = batch * -(-rows // _TILE) * -(-columns // _TILE)
    return min(rows, columns) >= LEAST and (tiles >= _PROGRAMS or depth <= _SHORT)


def _half(e: Expr) -> Expr | None:
    """The value of half precision that ``e`` is in float32."""
    if type(e) is not Op or e.name != "cast" or e.dtype != "float32" or TYPES[e.args[0].dtype].kind != "half":
        return None
    return e.args[0]


def _arranged(nest: Nest, operands: list[Expr], result: str, sizes: Mapping[str, int]) -> Dot | None:
    inner, axes = nest.phases[0].axes, nest.axes
    used = [_names(e) for e in operands]
    if (
        not axes
        or not all(a.name in names for a in inner for names in used)
        or any(e.buffer in walk.written(nest) for x in operands for e in walk.inside(x) if type(e) is Load)
    ):
        return None
    sides = [a for a in axes if (a.name in used[0]) != (a.name in used[1])]
    if sides and sides[-1].name in used[0]:
        operands, used = operands[::-1], used[::-1]
    batch = tuple(x for x in axes if x.name in used[0] & used[1])
    rows = tuple(x for x in axes if x.name in used[0] - used[1])
    columns = tuple(x for x in axes if x.name in used[1] - used[0])
    if len(batch) + len(rows) + len(columns) != len(axes):
        return None
    if not (rows and columns) or walk.points(inner, sizes) < LEAST:
        return None
    return Dot(batch, rows, columns, inner, operands[0], operands[1], result)


def _names(e: Expr) -> set[str]:
    return {name for x in walk.inside(e) if isinstance(x, (Load, IndexValue)) for name in x.index.symbols}


__all__ = ["LEAST", "Dot", "dot_of"]
