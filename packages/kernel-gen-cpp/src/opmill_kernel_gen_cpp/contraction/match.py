"""Recognises a sum of products over a window by its form, whatever operator it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from opmill_graph_ir.loops.index import ONE, ZERO, Index, index
from opmill_graph_ir.loops.ir import Axis, Load, LoopKernel, Nest, Op, Phase

from .. import walk
from ..target import Target
from .window import Line, Places, Window, is_positive, linear, window_of

_LEAST_WORK = 1 << 15
"""Multiplications below which laying out rows costs more than it saves."""
_MOST_TAPS = 1 << 12
_FURTHEST = 4
_TYPICAL = 32
"""What an extent that moves is taken for where work is guessed."""


@dataclass(frozen=True)
class Contraction:
    """``sums[m, p] = sum of a[m, k] * b[k, p]``, then the other phases (``rest``) at each point. Rows ``m`` along ``row`` are of known
    extent.

    ``kind``: ``contract``, points as the window has them, ``k`` its channels and taps; ``stencil``, the same where each row has a ``b`` of
    its own, ``b_row_step`` elements further; ``weight_gradient``, that of a stencil: the window's taps are the points, its points are
    summed over, and ``a`` has images and lines of its own. ``places``: what the axes of the points stand for. Steps in ``b``, and how many
    points a window has, may depend on size symbols."""

    kind: Literal["contract", "stencil", "weight_gradient"]
    row: Axis
    places: Places
    a: str
    a_offset: Index
    row_step: Index
    b: str
    window: Window
    result: str
    rest: tuple[Phase, ...]
    b_row_step: Index = ZERO
    a_image_step: Index = ZERO
    a_line_step: Index = ZERO

    @property
    def rows(self) -> int:
        return self.row.extent.constant or 0

    @property
    def plane(self) -> Index:
        """How many points there are for a row (of an image)."""
        w = self.window
        return index(w.lines.taps * w.columns.taps) if self.kind == "weight_gradient" else w.lines.points * w.columns.points


def contraction_of(nest: Nest, kernel: LoopKernel, target: Target) -> Contraction | None:
    """The nest as a contraction; None where it is none, or where ordinary loops do as well."""
    if not target.fma or not _is_one_sum(nest) or _overwrites(nest):
        return None
    phase = nest.phases[0]
    value = phase.reductions[0].value
    assert isinstance(value, Op)
    for a, b in (value.args, value.args[::-1]):
        if isinstance(a, Load) and isinstance(b, Load) and a.mask is None:
            found = _matched(nest, phase, a, b) or _weight_gradient(nest, phase, a, b)
            if found is not None:
                return found if _is_worth_it(found, target.bits // 32) else None
    return None


def _is_worth_it(found: Contraction, lanes: int) -> bool:
    w = found.window
    points = _guess(w.lines.points) * _guess(w.columns.points)
    taps = w.lines.taps * w.columns.taps
    work = found.rows * points * _guess(w.images) * w.channels * taps
    near = w.columns.stride <= max(w.columns.taps, _FURTHEST)  # whole lines are laid out, also what is stepped over
    return near and taps <= _MOST_TAPS and points >= lanes and found.rows >= 4 and work >= _LEAST_WORK


def _guess(extent: Index) -> int:
    return _TYPICAL if (n := extent.constant) is None else n


def _is_one_sum(nest: Nest) -> bool:
    """Whether the nest is a sum of products in float32 and then pointwise."""
    if not nest.phases or not nest.phases[0].axes or any(p.axes or p.checks or p.reductions for p in nest.phases[1:]):
        return False
    first = nest.phases[0]
    if first.lets or first.checks or first.stores or len(first.reductions) != 1:
        return False
    [r] = first.reductions
    return r.op == "sum" and r.dtype == "float32" and isinstance(r.value, Op) and r.value.name == "mul"


def _overwrites(nest: Nest) -> bool:
    """Whether the sums read what the nest itself writes, in another place."""
    return bool({e.buffer for e in walk.expressions(nest.phases[0]) if isinstance(e, Load)} & walk.written(nest))


def _matched(nest: Nest, phase: Phase, a: Load, b: Load) -> Contraction | None:
    axes = (*nest.axes, *phase.axes)
    at_a, at_b = linear(a.index, axes), linear(b.index, axes)
    if at_a is None or at_b is None or any(x.extent.constant is None for x in phase.axes):
        return None
    rows = [x for x in nest.axes if x.name in at_a]
    points = tuple(x for x in nest.axes if x.name not in at_a)
    if len(rows) != 1 or rows[0].extent.constant is None or any(x.name not in at_b for x in points):
        return None
    [row] = rows
    taps, apart = _in_order(phase.axes, at_a), at_b.get(row.name, ZERO)
    if taps is None or not is_positive(at_a[row.name]) or not (apart == ZERO or is_positive(apart)):
        return None
    window = window_of(replace(b, index=b.index - index(row.name) * apart), points, taps, apart == ZERO, _lie_apart(nest, points))
    if window is None:
        return None
    result = phase.reductions[0].names[0]
    kind: Literal["contract", "stencil"] = "stencil" if apart.terms else "contract"
    return Contraction(kind, row, window.places, a.buffer, at_a[""], at_a[row.name], b.buffer, window, result, nest.phases[1:], apart)


def _lie_apart(nest: Nest, points: tuple[Axis, ...]) -> bool:
    """Whether results do not go on from one step of the first of two axes to the next: each is then a run by itself."""
    if len(points) != 2:
        return False
    first, last = points
    steps = [(s.index.stride_of(first.name), s.index.stride_of(last.name)) for p in nest.phases[1:] for s in p.stores]
    return any(a is None or b is None or a != b * last.extent for a, b in steps)


def _weight_gradient(nest: Nest, phase: Phase, a: Load, b: Load) -> Contraction | None:
    """Where ``b``'s window moves over what is summed over, and its taps are the points."""
    axes = (*nest.axes, *phase.axes)
    at_a, at_b = linear(a.index, axes), linear(b.index, axes)
    if at_a is None or at_b is None or any(x.name not in at_a or x.name not in at_b for x in phase.axes):
        return None
    rows = [x for x in nest.axes if x.name in at_a]
    taps = tuple(x for x in nest.axes if x.name not in at_a)
    if (
        len(rows) != 1
        or not 1 <= len(taps) <= 2
        or any(x.extent.constant is None for x in nest.axes)
        or not all(x.name in at_b for x in axes)
    ):
        return None
    [row] = rows
    window = window_of(replace(b, index=b.index - index(row.name) * at_b[row.name]), phase.axes, taps, channels=False)
    if window is None or not is_positive(at_a[row.name]) or not is_positive(at_b[row.name]):
        return None
    image, line, column = window.places.image, window.places.line, window.places.column
    if at_a[column.name] != ONE:
        return None
    places = Places(None, taps[0] if len(taps) > 1 else None, taps[-1])
    if (window.lines.taps, window.columns.taps) != (places.line.extent.constant if places.line else 1, places.column.extent.constant):
        return None
    own = {"a_image_step": at_a[image.name] if image else ZERO, "a_line_step": at_a[line.name] if line else ZERO}
    result = phase.reductions[0].names[0]
    return Contraction(
        "weight_gradient", row, places, a.buffer, at_a[""], at_a[row.name], b.buffer, window, result, nest.phases[1:], at_b[row.name], **own
    )


def _in_order(axes: tuple[Axis, ...], at: Line) -> tuple[Axis, ...] | None:
    """The inner axes as ``a`` has them, outermost first; None where its elements do not follow each other."""
    steps = {x.name: at[x.name].constant for x in axes if x.name in at}
    if len(steps) < len(axes) or None in steps.values():
        return None
    ordered = sorted(axes, key=lambda x: -(steps[x.name] or 0))
    inner = [x.extent.constant or 0 for x in ordered]
    return tuple(ordered) if all(steps[x.name] == math.prod(inner[k + 1 :]) for k, x in enumerate(ordered)) else None
