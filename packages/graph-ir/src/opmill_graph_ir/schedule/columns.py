"""Sums down the columns of what another nest goes over row by row: kept in one kernel, so that a generator may do both in one pass.

A norm's backward reads its input and the gradient along rows, for the gradient of the input, and down columns, for those of weight and
bias; what comes of it is summed down columns again for the bias of the product before. Kernels of their own read everything once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..loops.index import Index, index
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


__all__ = ["along_one_axis", "summed_beside", "with_columns"]
