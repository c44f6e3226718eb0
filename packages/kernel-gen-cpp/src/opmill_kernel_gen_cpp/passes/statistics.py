"""Welford's statistics over short rows as two passes: the mean first, then squared distances from it. A row in the nearest cache is
read again for less than Welford's division a step costs, and the result is as exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import Const, Expr, IndexValue, Let, Load, Nest, Op, Phase, Reduction, Ref

from .. import walk

LONGEST = 16384
"""Points of a row that is gone over twice."""
_COST = 24


def two_passes(nest: Nest, extents: Mapping[str, int]) -> Nest:
    """The nest with each phase of Welford statistics in three, where that is sound and pays."""
    phases: list[Phase] = []
    for phase in nest.phases:
        phases += _split(phase, extents)
    return replace(nest, phases=tuple(phases))


def _split(phase: Phase, extents: Mapping[str, int]) -> list[Phase]:
    statistics = [r for r in phase.reductions if r.op == "welford"]
    points = 1
    for a in phase.axes:
        points *= extents[a.name]
    if not statistics or points > LONGEST:
        return [phase]
    again = [_again(r, phase) for r in statistics]
    if any(value is None for value in again):
        return [phase]
    count = index(1)
    for a in phase.axes:
        count = count * a.extent
    firsts, finals, seconds = [], [], []
    for r, value in zip(statistics, again, strict=True):
        assert value is not None
        mean, m2 = r.names
        about, off, squares = f"{mean}_about", f"{mean}_off", f"{m2}_sum"
        firsts.append(Let(about, Op("div", (Ref(f"{mean}_sum", r.dtype), _number(count, r.dtype)), r.dtype)))
        wide = value if value.dtype == r.dtype else Op("cast", (value,), r.dtype)
        distance = Op("sub", (wide, Ref(about, r.dtype)), r.dtype)
        seconds.append(Reduction((off,), "sum", distance, r.dtype))
        seconds.append(Reduction((squares,), "sum", Op("mul", (distance, distance), r.dtype), r.dtype))
        finals += _corrected(r, Ref(about, r.dtype), Ref(off, r.dtype), Ref(squares, r.dtype), _number(count, r.dtype))
    first = tuple(replace(r, op="sum", names=(f"{r.names[0]}_sum",)) if r.op == "welford" else r for r in phase.reductions)
    lets = phase.lets if any(isinstance(x, Ref) for v in again if v is not None for x in walk.inside(v)) else ()
    again_phase = Phase(phase.axes, lets=lets, reductions=tuple(seconds))
    return [replace(phase, reductions=first), Phase(lets=tuple(firsts)), again_phase, Phase(lets=tuple(finals))]


def _corrected(r: Reduction, about: Ref, off: Ref, squares: Ref, count: Expr) -> list[Let]:
    """Mean and squares about it from those about the rounded mean: exact for equal numbers, whatever their size."""

    def op(name: str, *args: Expr) -> Op:
        return Op(name, args, r.dtype)

    mean, m2 = r.names
    shift = op("div", off, count)
    left = op("max", op("sub", squares, op("mul", off, shift)), Const(0.0, r.dtype))
    return [Let(mean, op("add", about, shift)), Let(m2, left)]


def _again(r: Reduction, phase: Phase) -> Expr | None:
    """The reduced value for the second pass. Where the phase stores, only what it stored may be read: it may have overwritten the rest."""
    for store in phase.stores:
        if store.value == r.value and store.mode == "set" and {a.name for a in phase.axes} <= store.index.symbols:
            return Load(store.buffer, store.index, store.value.dtype)
    if phase.stores:
        return None
    return r.value if walk.op_cost(phase) <= _COST else None


def _number(i: Index, dtype: str) -> Expr:
    if (n := i.constant) is not None:
        return Const(float(n), dtype)
    return Op("cast", (IndexValue(i, "int64"),), dtype)
