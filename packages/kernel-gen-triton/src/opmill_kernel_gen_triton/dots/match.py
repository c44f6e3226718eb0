"""Recognises a matrix product by its form, whatever operator it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opmill_graph_ir.loops.ir import Axis, Expr, IndexValue, Load, Nest, Op

from .. import walk
from ..emit.types import TYPES

LEAST = 16
"""Rows, columns and depth that a tensor core takes at once. Fewer rows or columns are filled up."""


@dataclass(frozen=True)
class Dot:
    """``result[batch, rows, columns] = sum over inner of a * b``, of two values of one half precision type: ``a`` does not vary along
    ``columns``, ``b`` not along ``rows``. The last axis of the nest is a column."""

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    a: Expr
    b: Expr
    result: str


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
    if len(operands) < len(value.args) or operands[0].dtype != operands[1].dtype:
        return None
    return _arranged(nest, operands, reduction.names[0], sizes)


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
    if axes[-1].name in used[0]:
        operands, used = operands[::-1], used[::-1]
    batch = tuple(x for x in axes if x.name in used[0] & used[1])
    rows = tuple(x for x in axes if x.name in used[0] - used[1])
    columns = tuple(x for x in axes if x.name in used[1] - used[0])
    if len(batch) + len(rows) + len(columns) != len(axes) or axes[-1] not in columns:
        return None
    if not rows or walk.points(inner, sizes) < LEAST:
        return None
    return Dot(batch, rows, columns, inner, operands[0], operands[1], result)


def _names(e: Expr) -> set[str]:
    return {name for x in walk.inside(e) if isinstance(x, (Load, IndexValue)) for name in x.index.symbols}


__all__ = ["LEAST", "Dot", "dot_of"]
