"""Sums down the columns of what another nest goes over row by row: kept in one kernel, so that a generator may do both in one pass.

A norm's backward reads its input and the gradient along rows, for the gradient of the input, and down columns, for those of weight and
bias; what comes of it is summed down columns again for the bias of the product before. Kernels of their own read everything once more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..loops.index import Index, floordiv, index, mod
from ..loops.ir import Axis, Load, Nest, Phase
from ..loops.walk import expressions
from .coalesce import map_phase
from .fuse import Group
from .rewrite import Rewriter

_POINTS = 1 << 20
"""Of rows and columns, from which on a pass over them takes longer than it takes to put sums together."""
_ROWS = 2048
"""From which on there are several for each of as many programs as a device runs at once."""
_COLUMNS = 8192
"""Up to which a program keeps a row, and the sums of all columns."""
_SUMS = 6
"""That a program keeps beside a row."""


def summed_beside(rows: Nest, columns: Nest) -> Phase | None:
    """The first phase of ``columns`` over the axes of ``rows``, if it only sums down the columns of what ``rows`` goes over row by row, and
    finds there what it needs; None where not."""
    row, column = _row_axes(rows), columns.axes
    if row is None or len(column) != 1 or not columns.phases:
        return None
    first, *rest = columns.phases
    if len(first.axes) != 1 or first.stores or any(p.axes for p in rest) or any(p.checks or p.scans for p in columns.phases):
        return None
    if not first.reductions or any(r.op != "sum" or r.dtype != "float32" for r in first.reductions):
        return None
    outer, inner = row
    if first.axes[0].extent != outer.extent or column[0].extent != inner.extent:
        return None
    moved = map_phase(first, Rewriter({first.axes[0].name: index(outer.name), column[0].name: index(inner.name)}), (inner,))
    return moved if _finds_all(rows, moved) and _apart(rows, columns, moved) else None


def _row_axes(rows: Nest) -> tuple[Axis, Axis] | None:
    """The axis of rows and the one along them, of a nest that reduces rows; None where it is another kind of nest."""
    inner = list(dict.fromkeys(p.axes for p in rows.phases if p.axes))
    if len(rows.axes) != 1 or len(inner) != 1 or len(inner[0]) != 1 or not any(p.axes and p.reductions for p in rows.phases):
        return None
    if any(p.checks or p.scans or any(s.mode != "set" or s.first is not None for s in p.stores) for p in rows.phases):
        return None
    outer, along = rows.axes[0], inner[0][0]
    places = {outer.name, along.name}
    plain = all(e.index.symbols <= places for p in rows.phases for e in _loads(p)) and all(
        s.index.symbols <= places for p in rows.phases for s in p.stores
    )
    few = along.extent.constant is not None and outer.extent.constant is not None
    return (outer, along) if plain and few else None


def _finds_all(rows: Nest, moved: Phase) -> bool:
    """Whether the large part of what is summed is at hand where a row has been gone over."""
    places = {rows.axes[0].name, moved.axes[0].name}
    known = {(e.buffer, e.index) for p in rows.phases for e in _loads(p)} | {(s.buffer, s.index) for p in rows.phases for s in p.stores}
    loads = _loads(moved)
    large = {(e.buffer, e.index) for e in loads if e.index.symbols == places}
    return bool(large & known) and 2 * len(large & known) >= len(large) and all(e.index.symbols <= places and e.mask is None for e in loads)


def _apart(rows: Nest, columns: Nest, moved: Phase) -> bool:
    """Whether the two may be done at once: what one stores the other does not touch, but for what is summed at the point of its store."""
    stores = [(s.buffer, s.index) for p in rows.phases for s in p.stores]
    written = [buffer for buffer, _ in stores]
    read = {e.buffer for p in rows.phases for e in _loads(p)}
    ours = {s.buffer for p in columns.phases for s in p.stores}
    later = {e.buffer for p in columns.phases[1:] for e in _loads(p)}
    if ours & (read.union(written) | {e.buffer for e in _loads(moved)}) or later.intersection(written):
        return False
    return all(written.count(e.buffer) == 1 and (e.buffer, e.index) in stores for e in _loads(moved) if e.buffer in written)


def _loads(phase: Phase) -> list[Load]:
    return [e for e in expressions(phase) if type(e) is Load]


def with_columns(groups: Sequence[Group], nests: Mapping[int, Nest]) -> list[list[Group]]:
    """The groups in order, those together that share a kernel: rows, and behind them what sums their columns. ``nests``: by the number of a
    group, those of devices that do both at once."""
    places = {g.number: k for k, g in enumerate(groups)}
    partners: dict[int, list[Group]] = {}
    moved: set[int] = set()
    rows = [g for g in groups if g.number in nests and _is_large(nests[g.number])]
    for group in groups:
        nest = nests.get(group.number)
        if nest is None or len(nest.axes) != 1 or not nest.phases or not nest.phases[0].reductions:
            continue
        near = sorted(rows, key=lambda r: abs(places[r.number] - places[group.number]))
        for other in near:
            beside = partners.get(other.number, [])
            phase = None if other is group or other.number in moved or group.number in partners else _named(nests[other.number], nest)
            if phase is None or not _may_move(group, other, groups, places) or not all(_independent(group, b) for b in beside):
                continue
            if len(phase.reductions) + sum(len(nests[b.number].phases[0].reductions) for b in beside) <= _SUMS:
                partners.setdefault(other.number, []).append(group)
                moved.add(group.number)
                break
    return [[g, *partners.get(g.number, ())] for g in groups if g.number not in moved]


# ---- sums of what points store ---------------------------------------------------------------------------------------------


def summed_where_stored(groups: Sequence[Group], nests: Mapping[int, Nest]) -> tuple[list[Group], dict[int, Nest]]:
    """The groups and nests, sums down the columns of what a pointwise group stores taken where it stores them: gradients of queries, keys
    and values that come together in one buffer, say, which is then summed for a bias."""
    order, made = list(groups), dict(nests)
    for columns in groups:
        source = _source_of(columns, order, made)
        if source is None or any(g.before >> columns.number & 1 for g in order):
            continue
        places = {g.number: k for k, g in enumerate(order)}
        merged = _with_store(made[columns.number], made[source.number])
        if merged is None or places[source.number] > places[columns.number] or not _may_move(columns, source, order, places):
            continue
        before = (source.before | columns.before) & ~(1 << source.number)
        reads, writes = source.reads | columns.reads, source.writes | columns.writes
        whole = replace(
            columns, number=source.number, members=[*source.members, *columns.members], before=before, reads=reads, writes=writes
        )
        order[places[source.number]] = whole
        order.remove(columns)
        made[source.number] = merged
    return order, made


def _source_of(columns: Group, groups: Sequence[Group], nests: Mapping[int, Nest]) -> Group | None:
    """The group that stores the one large buffer that ``columns`` sums."""
    nest = nests.get(columns.number)
    if nest is None or len(nest.axes) != 1 or not nest.phases or not nest.phases[0].reductions or nest.phases[0].stores:
        return None
    buffers = {e.buffer for e in _loads(nest.phases[0])}
    return next((g for g in groups if g.number in nests and g is not columns and buffers <= g.writes), None) if len(buffers) == 1 else None


def _with_store(columns: Nest, points: Nest) -> Nest | None:
    """``columns`` that computes and stores what it sums as ``points`` does; None where the two do not go over the same in one order."""
    first, *rest = columns.phases
    if len(points.phases) != 1 or points.phases[0].axes or len(first.axes) != 1 or any(p.axes for p in rest):
        return None
    [phase] = points.phases
    if len(phase.stores) != 1 or phase.checks or phase.scans or phase.reductions or any(p.checks or p.scans for p in columns.phases):
        return None
    if first.lets or any(r.op != "sum" or r.dtype != "float32" for r in first.reductions):
        return None
    [store], [row], [column] = phase.stores, first.axes, columns.axes
    count, length = (_constant(a.extent) for a in (row, column))
    at = index(row.name) * length + column.name
    if store.mode != "set" or store.first is not None or count < _ROWS or count * length < _POINTS:
        return None
    if any(e.mask is not None or e.index != at for e in _loads(first)) or any(e.buffer == store.buffer for p in rest for e in _loads(p)):
        return None
    places = _unfolded(points.axes, store.index, index(row.name), index(column.name), count, length)
    if places is None or not all(_goes_along(e.index, points.axes[-1].name) for e in _loads(phase)):
        return None
    moved = map_phase(phase, Rewriter(places, extents={row.name: count, column.name: length}), (row,))
    value = moved.stores[0].value
    summed = Rewriter.replacing(dict.fromkeys(_loads(first), value))
    reductions = tuple(replace(r, value=summed(r.value)) for r in first.reductions)
    whole = replace(moved, reductions=reductions, stores=(replace(moved.stores[0], index=at),))
    return replace(columns, phases=(whole, *rest), origin="; ".join(o for o in (points.origin, columns.origin) if o))


def _unfolded(axes: tuple[Axis, ...], at: Index, row: Index, column: Index, count: int, length: int) -> dict[str, Index] | None:
    """The axes of points that lie one behind the other, in terms of a row and a column of theirs; None where they lie otherwise."""
    step, places, rest = 1, {}, column
    for axis in reversed(axes):
        extent, stride = _constant(axis.extent), at.stride_of(axis.name)
        if not extent or stride is None or stride.constant != step:
            return None
        if step == length:
            rest = row
        end = step * extent in (length, count * length)
        places[axis.name] = rest if end else mod(rest, extent)
        rest = floordiv(rest, extent)
        step *= extent
    reached = any(math.prod(_constant(a.extent) for a in axes[k:]) == length for k in range(len(axes)))
    return places if step == count * length and reached else None


def _goes_along(at: Index, axis: str) -> bool:
    """Whether neighbours along an axis are neighbours in memory, or one."""
    stride = at.stride_of(axis) if axis in at.symbols else None
    return axis not in at.symbols or (stride is not None and stride.constant == 1)


def _named(rows: Nest, columns: Nest) -> Phase | None:
    """As :func:`summed_beside`, of nests whose axes have names of their own."""
    return summed_beside(along_one_axis(rows), columns)


def along_one_axis(rows: Nest) -> Nest:
    """The nest with all phases over the same axis, where each has one of the same extent."""
    inner = [p for p in rows.phases if p.axes]
    if not inner or any(len(p.axes) != 1 or p.axes[0].extent != inner[0].axes[0].extent for p in inner):
        return rows
    [axis] = inner[0].axes
    phases = (
        map_phase(p, Rewriter({p.axes[0].name: index(axis.name)}), (axis,)) if p.axes and p.axes != (axis,) else p for p in rows.phases
    )
    return replace(rows, phases=tuple(phases))


def _is_large(rows: Nest) -> bool:
    axes = _row_axes(along_one_axis(rows))
    if axes is None:
        return False
    count, length = (_constant(a.extent) for a in axes)
    return count >= _ROWS and length <= _COLUMNS and count * length >= _POINTS


def _constant(extent: Index) -> int:
    return extent.constant or 0


def _independent(a: Group, b: Group) -> bool:
    return not (a.before >> b.number & 1 or b.before >> a.number & 1)


def _may_move(group: Group, other: Group, groups: Sequence[Group], places: Mapping[int, int]) -> bool:
    """Whether ``group`` may be done where ``other`` is: nobody in between waits for it, or makes what it waits for."""
    here, there = places[group.number], places[other.number]
    if here < there:
        return not any(g.before >> group.number & 1 for g in groups[here + 1 : there + 1])
    return not any(group.before >> g.number & 1 for g in groups[there + 1 : here])


__all__ = ["along_one_axis", "summed_beside", "summed_where_stored", "with_columns"]
