"""Long reductions at few outer points, in parts: a nest of partial results in scratch memory, and one that puts them together.

The parts depend on the shape alone, so that results are bitwise the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, Buffer, Load, LoopKernel, Nest, Phase, Ref, Store
from opmill_graph_ir.schedule.coalesce import map_phase
from opmill_graph_ir.schedule.rewrite import Rewriter

_MOST_OUTER = 128
_LEAST_POINTS = 1 << 17
_LEAST_PART = 2048
_MOST_PARTS = 64
_SPLIT = {"sum", "prod", "max", "min", "any", "all", "xor"}


def in_parts(kernel: LoopKernel, whole: Callable[[Nest], bool] = lambda nest: False) -> tuple[LoopKernel, tuple[Buffer, ...]]:
    """The kernel with such reductions split, and the scratch buffers (last among its buffers) that it needs for them. Nests that are
    ``whole`` stay as they are."""
    nests: list[Nest] = []
    scratch: list[Buffer] = []
    for nest in kernel.nests:
        plan = None if whole(nest) else _plan(nest)
        if plan is None:
            nests.append(nest)
        else:
            nests += _split(nest, *plan, scratch)
    if not scratch:
        return kernel, ()
    return replace(kernel, nests=tuple(nests), buffers=(*kernel.buffers, *scratch)), tuple(scratch)


def _constant(axes: tuple[Axis, ...]) -> int | None:
    total = 1
    for a in axes:
        if a.extent.constant is None:
            return None
        total *= a.extent.constant
    return total


def _plan(nest: Nest) -> tuple[int, Axis, int] | None:
    """Number of the phase to split, its axis, and into how many parts."""
    inner = [n for n, p in enumerate(nest.phases) if p.axes]
    if len(inner) != 1:
        return None
    phase, outer = nest.phases[inner[0]], _constant(nest.axes)
    points = _constant(phase.axes)
    plain = phase.reductions and not phase.checks and not phase.stores and all(r.op in _SPLIT for r in phase.reductions)
    before = any(p.stores or p.checks for p in nest.phases[: inner[0]])
    if not plain or before or outer is None or points is None or outer > _MOST_OUTER or outer * points < _LEAST_POINTS:
        return None
    axis = phase.axes[0]
    extent = axis.extent.constant or 1
    most = min(_MOST_PARTS, points // _LEAST_PART, extent)
    parts = max((c for c in range(1, most + 1) if extent % c == 0), default=1)
    return (inner[0], axis, parts) if parts > 1 else None


def _split(nest: Nest, number: int, axis: Axis, parts: int, scratch: list[Buffer]) -> list[Nest]:
    phase = nest.phases[number]
    part = Axis(f"{axis.name}_part", index(parts))
    length = (axis.extent.constant or 1) // parts
    extents = {a.name: a.extent.constant or 1 for a in (*nest.axes, *phase.axes)} | {part.name: parts, axis.name: length}
    moved = Rewriter({axis.name: index(part.name) * length + axis.name}, extents=extents)
    place = index(0)
    for a in nest.axes:
        place = place * a.extent + a.name
    place = place * parts + part.name
    count = (_constant(nest.axes) or 1) * parts
    names = {r.names[0]: Buffer(f"scratch_{len(scratch) + k}", r.dtype, "inout", index(count)) for k, r in enumerate(phase.reductions)}
    scratch += names.values()
    axes = tuple(replace(a, extent=index(length)) if a == axis else a for a in phase.axes)
    stores = Phase(stores=tuple(Store(b.name, place, Ref(name, b.dtype)) for name, b in names.items()))
    lets = tuple(replace(p, stores=()) for p in nest.phases[:number])
    loads = tuple(replace(r, value=Load(names[r.names[0]].name, place, r.dtype)) for r in phase.reductions)
    together = (*nest.phases[:number], Phase((part,), reductions=loads), *nest.phases[number + 1 :])
    return [Nest((*nest.axes, part), (*lets, map_phase(phase, moved, axes), stores), nest.origin), replace(nest, phases=together)]
