"""Which axis runs along the lanes of vectors, how many lanes there are, how far loops are unrolled and tiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from opmill_graph_ir.loops.index import Index
from opmill_graph_ir.loops.ir import Axis, Expr, IndexValue, Load, Nest, Op, Phase, Ref, Scan, Store

from . import walk
from .emit.convert import Vectors
from .emit.lanes import even_step, offsets, step_between_turns
from .emit.memory import PICKED
from .emit.types import TYPES
from .target import Target

TILE = 16
"""Rows of a transposed read done together: elements of float32 in a cache line."""


@dataclass(frozen=True)
class Choice:
    """How a nest runs. ``outer``: the vector axis, where it is an outer one; else ``inner`` names one for each phase (None: scalar).
    ``unroll`` copies of the vector loop's body run together in outer mode; ``tiled``: an outer axis to be tiled for transposed reads."""

    vectors: Vectors | None
    outer: str | None = None
    inner: Mapping[int, str] = field(default_factory=dict)
    unroll: int = 1
    tiled: str | None = None


def choose(nest: Nest, extents: Mapping[str, int], target: Target) -> Choice:
    """The cheapest choice by a count of memory operations and arithmetic."""
    combining = [s for p in nest.phases for s in p.stores if s.mode != "set"]
    best, best_cost = Choice(None), sum(_phase_cost(p, None, nest, extents, 1) for p in nest.phases)
    for axis in nest.axes:
        vectors = lanes_for(nest, target, {axis.name})
        if vectors is None or not all(_side_by_side(s, axis.name, nest) for s in combining):
            continue
        lanes = vectors.lanes
        cost = sum(_phase_cost(p, axis.name, nest, extents, lanes) for p in nest.phases)
        if cost < best_cost * 0.999 or (cost <= best_cost and best.outer is not None):  # the later axis wins ties
            best, best_cost = Choice(vectors, axis.name), cost
    vectors = lanes_for(nest, target, {a.name for p in nest.phases for a in p.axes})
    if vectors is None:
        return _outer(nest, best, extents)
    lanes, inner, total = vectors.lanes, {}, 0.0
    for n, phase in enumerate(nest.phases):
        own = [s for s in phase.stores if s.mode != "set"]
        able = [a.name for a in phase.axes if all(_side_by_side(s, a.name, nest) for s in own)]
        costs = {a: _phase_cost(phase, a, nest, extents, lanes) for a in able}
        plain = _phase_cost(phase, None, nest, extents, lanes)
        axis_name = min(reversed(costs), key=lambda a: costs[a], default=None)
        horizontal = 12.0 * len(phase.reductions) / max(_points(phase.axes, extents), 1)
        points = _points((*nest.axes, *phase.axes), extents)
        if axis_name is not None and costs[axis_name] + horizontal * points < plain:
            inner[n] = axis_name
            total += costs[axis_name] + horizontal * points
        else:
            total += plain
    if inner and total <= best_cost:
        return Choice(vectors, inner=inner)
    return _outer(nest, best, extents)


def _outer(nest: Nest, best: Choice, extents: Mapping[str, int]) -> Choice:
    """The choice of an outer axis, or of none, with what belongs to it."""
    if best.outer is None or best.vectors is None:
        return Choice(None)
    unroll = _unroll(nest, best.outer, extents, best.vectors.lanes)
    return Choice(best.vectors, best.outer, unroll=unroll, tiled=_tiled(nest, best.outer, extents))


def _side_by_side(store: Store, axis: str, nest: Nest) -> bool:
    """Whether lanes along ``axis`` write next to each other: those that may meet have to be added one after the other."""
    moving = _moving(nest, {axis})
    step = store.index.stride_of(axis)
    return step is not None and step.constant == 1 and store.index.symbols & moving == {axis} and store.value.dtype != "bool"


def _moving(nest: Nest, axes: set[str]) -> set[str]:
    """Names of what is not the same at all points along ``axes``: these, and what is made of it."""
    moving = set(axes)
    for phase in nest.phases:
        for let in phase.lets:
            moving |= set() if _uniform(let.value, moving) else {let.name}
        for r in phase.reductions:
            if not axes & {a.name for a in phase.axes} and not _uniform(r.value, moving):
                moving |= set(r.names)
        moving |= {name for s in phase.scans for name in s.names}
    return moving


def lanes_for(nest: Nest, target: Target, axes: set[str]) -> Vectors | None:
    """Of vectors along some of ``axes``. 64-bit values that are not the same in all lanes halve their number. None where the register
    holds fewer than two, or positions of argmax, which are kept in integers as wide as the masks, would not be as wide as the values."""
    sizes, varying = {4}, _moving(nest, axes)
    for phase in nest.phases:
        for e in walk.expressions(phase):
            if isinstance(e, Op):
                sizes |= {TYPES[e.dtype].size, *(TYPES[a.dtype].size for a in e.args)} if not _uniform(e, varying) else set()
            elif isinstance(e, (Load, IndexValue)) and e.index.symbols & varying:
                sizes.add(TYPES[e.dtype].size)
        sizes |= {TYPES[r.dtype].size for r in phase.reductions} | {TYPES[s.dtype].size for s in phase.scans}
    mask = max(sizes)
    lanes = target.bits // 8 // mask
    kept = {(r.op, r.dtype) for p in nest.phases for r in p.reductions} | {(s.op, s.dtype) for p in nest.phases for s in p.scans}
    if lanes < 2 or any(op.startswith("arg") and TYPES[dtype].size != mask for op, dtype in kept):
        return None
    return Vectors(lanes, mask)


def _uniform(e: Expr, varying: set[str]) -> bool:
    """Whether nothing in it is among the names that vary."""
    return not any(
        x.name in varying if isinstance(x, Ref) else isinstance(x, (Load, IndexValue)) and x.index.symbols & varying for x in walk.inside(e)
    )


def _points(axes: Iterable[Axis], extents: Mapping[str, int]) -> float:
    total = 1.0
    for a in axes:
        total *= extents[a.name]
    return total


def _access(i: Index, axis: str, extents: Mapping[str, int], lanes: int, is_store: bool, apart: float) -> float:
    """What a point's part of an access by vectors along ``axis`` costs. ``apart``: where lanes do not share cache lines."""
    if axis not in i.symbols:
        return 1.0 if is_store else 0.1 / lanes
    stride = i.stride_of(axis)
    if stride is None and (stride := even_step(i, axis, lanes, extents)) is None:
        if is_store or (offsets(i, axis, lanes, extents) is None and step_between_turns(i, axis, lanes) is None):
            return 1.5
        return 2.0 / lanes
    if (n := stride.constant) in (0, 1):
        return (1.0 if is_store else 0.1 / lanes) if n == 0 else 1.0 / lanes
    if n == -1 and not is_store:
        return 1.5 / lanes
    if n in PICKED:  # vectors are read whole, and put together
        return 1.0 if is_store else min(0.9, (2 * n - 1) / lanes)
    return apart + 0.1 * is_store


def _waiting(scan: Scan) -> float:
    """What lanes cost that wait for each other along a scan. Sums of integers are as quick one by one."""
    if scan.op in ("sum", "prod"):
        return 4.0 if scan.op == "sum" and scan.dtype.startswith("int") else 1.0
    return 30.0 if scan.op == "logaddexp" else 12.0


def _phase_cost(phase: Phase, axis: str | None, nest: Nest, extents: Mapping[str, int], lanes: int) -> float:
    """Of all points of a phase: accesses, and arithmetic shared by the lanes."""
    points = _points((*nest.axes, *phase.axes), extents)
    own = {a.name for a in (*nest.axes, *phase.axes)}
    ops = walk.op_cost(phase)
    if axis is None or axis not in own:
        return points * (ops + sum(1 for _ in walk.indices(phase)))
    cost = ops / lanes
    if phase.scans and axis == phase.axes[0].name:
        cost += sum(map(_waiting, phase.scans))
    apart = 8.0 if phase.scans else 1.0  # rows, an element of each at a time, are far apart in memory
    cost += sum(_access(i, axis, extents, lanes, is_store, apart) for i, is_store in walk.indices(phase))
    extent = extents[axis]
    return points * cost * (-(-extent // lanes) * lanes / extent)


def _unroll(nest: Nest, axis: str, extents: Mapping[str, int], lanes: int) -> int:
    """Columns are reduced several vectors at a time: whole cache lines, and chains of additions side by side. Not where lanes are written
    to rows of their own, of which a cache keeps few that are a power of two apart."""
    if not any(p.reductions or p.scans for p in nest.phases) or any(walk.op_cost(p) > 24 for p in nest.phases):
        return 1
    steps = [s.index.stride_of(axis) for p in nest.phases if p.axes for s in p.stores]
    if any(step is None or step.constant not in (0, 1) for step in steps):
        return 1
    for copies in (4, 2):
        if extents[axis] >= copies * lanes:
            return copies
    return 1


def _tiled(nest: Nest, axis: str, extents: Mapping[str, int]) -> str | None:
    """An outer axis along which something is contiguous that is strided along ``axis``."""
    if any(p.axes for p in nest.phases) or extents[axis] < TILE:
        return None
    for other in nest.axes:
        if other.name == axis or extents[other.name] < TILE:
            continue
        for phase in nest.phases:
            for i, _ in walk.indices(phase):
                along, across = i.stride_of(other.name), i.stride_of(axis)
                if along is not None and along.constant == 1 and (across is None or across.constant not in (0, 1)):
                    return other.name
    return None
