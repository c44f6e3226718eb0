"""Recognises a sum of products over a window by its form, whatever operator it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Axis, IndexValue, Load, LoopKernel, Nest, Op, Phase

from .. import walk
from ..target import Target
from .window import Line, Window, linear, window_of

_LEAST_WORK = 1 << 15
"""Multiplications below which laying out rows costs more than it saves."""
_MOST_TAPS = 1 << 12


@dataclass(frozen=True)
class Contraction:
    """``sums[m, p] = sum of a[m, k] * b[k, p]``: rows ``m`` along ``row``, points ``p`` along ``points`` (image, line, column; the
    innermost last), then the other phases at each point. With ``b_row_step`` each row has a ``b`` of its own, so many elements further."""

    row: Axis
    points: tuple[Axis, ...]
    a: str
    a_offset: int
    row_step: int
    b: str
    window: Window
    result: str
    rest: tuple[Phase, ...]
    b_row_step: int = 0

    @property
    def rows(self) -> int:
        return self.row.extent.constant or 0


def contraction_of(nest: Nest, kernel: LoopKernel, target: Target) -> Contraction | None:
    """The nest as a contraction; None where it is none, or where ordinary loops do as well."""
    if not target.fma or not _is_one_sum(nest) or not _is_static(nest, kernel):
        return None
    phase = nest.phases[0]
    value = phase.reductions[0].value
    assert isinstance(value, Op)
    for a, b in (value.args, value.args[::-1]):
        if isinstance(a, Load) and isinstance(b, Load) and (found := _matched(nest, phase, a, b)) is not None:
            lanes = target.bits // 32
            w = found.window
            points = w.lines.points * w.columns.points
            work = found.rows * points * w.images * w.channels * w.lines.taps * w.columns.taps
            fits = w.lines.taps * w.columns.taps <= _MOST_TAPS
            known = all(a.extent.constant is not None for a in (found.row, *found.points[-2:]))
            return found if fits and known and points >= lanes and found.rows >= 4 and work >= _LEAST_WORK else None
    return None


def _is_one_sum(nest: Nest) -> bool:
    """Whether the nest is a sum of products in float32 and then pointwise."""
    if not nest.phases or not nest.phases[0].axes or any(p.axes or p.checks or p.reductions for p in nest.phases[1:]):
        return False
    first = nest.phases[0]
    if first.lets or first.checks or first.stores or len(first.reductions) != 1:
        return False
    [r] = first.reductions
    return r.op == "sum" and r.dtype == "float32" and isinstance(r.value, Op) and r.value.name == "mul"


def _is_static(nest: Nest, kernel: LoopKernel) -> bool:
    """Whether no size symbol occurs but as the number of images, and nothing is read that the nest itself writes in another place."""
    symbols = set(kernel.symbols)
    moving = [a for a in nest.axes if a.extent.constant is None]
    if len(moving) > 1 or any(str(a.extent) not in symbols for a in moving) or any(a.extent.constant is None for a in nest.phases[0].axes):
        return False
    for phase in nest.phases:
        if any(i.symbols & symbols for i, _ in walk.indices(phase)):
            return False
        if any(e.index.symbols & symbols for e in walk.expressions(phase) if isinstance(e, IndexValue)):
            return False
    read = {e.buffer for e in walk.expressions(nest.phases[0]) if isinstance(e, Load)}
    return not read & walk.written(nest)


def _matched(nest: Nest, phase: Phase, a: Load, b: Load) -> Contraction | None:
    at_a, at_b = linear(a.index), linear(b.index)
    if at_a is None or at_b is None or a.mask is not None:
        return None
    rows = [x for x in nest.axes if x.name in at_a]
    points = tuple(x for x in nest.axes if x.name not in at_a)
    if len(rows) != 1 or any(x.name not in at_b for x in points):
        return None
    [row] = rows
    taps, apart = _in_order(phase.axes, at_a), at_b.get(row.name, 0)
    if taps is None or at_a[row.name] < 0 or apart < 0:
        return None
    window = window_of(replace(b, index=b.index - index(row.name) * apart), points, taps, channels=not apart)
    if window is None:
        return None
    result = phase.reductions[0].names[0]
    return Contraction(row, points, a.buffer, at_a.get("", 0), at_a[row.name], b.buffer, window, result, nest.phases[1:], apart)


def _in_order(axes: tuple[Axis, ...], at: Line) -> tuple[Axis, ...] | None:
    """The inner axes as ``a`` has them, outermost first; None where its elements do not follow each other."""
    if any(x.name not in at for x in axes):
        return None
    ordered = sorted(axes, key=lambda x: -at[x.name])
    inner = [x.extent.constant or 0 for x in ordered]
    return tuple(ordered) if all(at[x.name] == math.prod(inner[k + 1 :]) for k, x in enumerate(ordered)) else None
