"""How the elements that a convolution reads lie: an index and a mask taken apart into image, channel, line and column."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opmill_graph_ir.loops.index import Index
from opmill_graph_ir.loops.ir import Axis, Const, Expr, IndexValue, Load, Op

Line = dict[str, int]
"""An index that is linear: coefficient by axis, the constant under ``""``."""


@dataclass(frozen=True)
class Direction:
    """Along lines or columns: the source's coordinate is ``stride * point + dilation * tap - pad``, and outside ``[0, size)`` it is zero."""

    points: int
    taps: int
    stride: int
    dilation: int
    pad: int
    size: int


@dataclass(frozen=True)
class Window:
    """What is read: steps in elements of the source, columns being next to each other. ``offset``: of the first line's first column."""

    images: int
    """1 where a size symbol tells how many there are."""
    image_step: int
    channels: int
    channel_step: int
    line_step: int
    lines: Direction
    columns: Direction
    offset: int


_FAR = 64
"""Elements from which on taps without bounds rather lie on different lines."""


def linear(i: Index) -> Line | None:
    """``i`` by coefficients; None where it is not linear."""
    out: Line = {}
    for monomial, coefficient in i.terms:
        if len(monomial) > 1 or not all(isinstance(atom, str) for atom in monomial):
            return None
        out[str(monomial[0]) if monomial else ""] = coefficient
    return out


def window_of(load: Load, points: Sequence[Axis], taps: Sequence[Axis], channels: bool = True) -> Window | None:
    """The window that ``load`` moves over ``points`` (image, line, column; those that there are, outermost first), its taps over ``taps``
    (channel unless there are none, line, column). None where it has another form."""
    at, bounds = linear(load.index), _bounds(load)
    if at is None or bounds is None or not 1 <= len(points) <= 3 or not 1 <= len(taps) <= 3:
        return None
    if any(at.get(a.name, 0) <= 0 for a in (*points, *taps)) or at.keys() - {a.name for a in (*points, *taps)} - {""}:
        return None
    image, line, column = places(points)
    channel, tap_line, tap_column = _taps(taps, line, column, at, bounds)
    if not channels and channel is not None:
        if tap_line is not None:
            return None
        channel, tap_line = None, channel
    vertical = [b for b in bounds if _mentions(b, line, tap_line)]
    horizontal = [b for b in bounds if _mentions(b, column, tap_column)]
    if len(vertical) + len(horizontal) != len(bounds) or any(b in vertical for b in horizontal):
        return None
    step = _line_step(line, tap_line, at, vertical)
    lines = _direction(line, tap_line, at, vertical, step)
    columns = _direction(column, tap_column, at, horizontal, 1)
    if lines is None or columns is None:
        return None
    offset = at.get("", 0) + lines.pad * step + columns.pad
    return Window(_extent(image), _step(image, at), _extent(channel), _step(channel, at), step, lines, columns, offset)


def places(points: Sequence[Axis]) -> tuple[Axis | None, Axis | None, Axis]:
    """(image, line, column) of one to three axes: the last are there."""
    return points[-3] if len(points) > 2 else None, points[-2] if len(points) > 1 else None, points[-1]


def _extent(axis: Axis | None) -> int:
    return 1 if axis is None or (n := axis.extent.constant) is None else n


def _step(axis: Axis | None, at: Line) -> int:
    return 0 if axis is None else at.get(axis.name, 0)


# ---- masks -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bound:
    """``at >= 0``, or ``at < size`` where ``size`` is given."""

    at: Line
    size: int | None


def _bounds(load: Load) -> list[_Bound] | None:
    """The mask as a conjunction of bounds; None where it is something else, or what stands in for masked elements is not zero."""
    if load.mask is None:
        return []
    if load.other is not None and load.other.value != 0:
        return None
    found = [_bound(e) for e in _conjuncts(load.mask)]
    return None if None in found else [b for b in found if b is not None]


def _conjuncts(mask: Expr) -> Iterator[Expr]:
    if type(mask) is Op and mask.name == "logical_and":
        for arg in mask.args:
            yield from _conjuncts(arg)
    else:
        yield mask


def _bound(e: Expr) -> _Bound | None:
    if type(e) is not Op or e.name not in ("ge", "lt"):
        return None
    value, limit = e.args
    if type(value) is not IndexValue or type(limit) is not Const or (at := linear(value.index)) is None:
        return None
    if e.name == "ge":
        return _Bound({**at, "": at.get("", 0) - int(limit.value)}, None)
    return _Bound(at, int(limit.value))


# ---- directions ------------------------------------------------------------------------------------------------------------


def _mentions(bound: _Bound, *axes: Axis | None) -> bool:
    return any(a is not None and a.name in bound.at for a in axes)


def _taps(taps: Sequence[Axis], line: Axis | None, column: Axis, at: Line, bounds: Sequence[_Bound]) -> tuple[Axis | None, Axis | None, Axis | None]:
    """(channel, line, column) among the taps. Any choice is right; bounds, and then the distance that a tap steps, tell the one that is meant."""
    if len(taps) == 3:
        return taps[0], taps[1], taps[2]
    last = taps[-1]
    with_last = [b for b in bounds if last.name in b.at]
    if with_last:
        is_column = any(_mentions(b, column) for b in with_last) or line is None
    elif len(taps) == 1:
        return last, None, None
    else:
        is_column = at[last.name] < (at[line.name] if line is not None else _FAR)
    first = taps[0] if len(taps) == 2 else None
    if not is_column:
        return first, last, None
    if first is not None and any(first.name in b.at for b in bounds):
        return None, first, last
    return first, None, last


def _line_step(line: Axis | None, tap: Axis | None, at: Line, bounds: Sequence[_Bound]) -> int:
    """Elements from one line of the source to the next."""
    for axis in (line, tap):
        for b in bounds:
            if axis is not None and axis.name in b.at:
                return at[axis.name] // max(b.at[axis.name], 1)
    return math.gcd(_step(line, at), _step(tap, at)) or 1


def _direction(point: Axis | None, tap: Axis | None, at: Line, bounds: Sequence[_Bound], step: int) -> Direction | None:
    """What the bounds say of one direction; without bounds nothing is outside."""
    here = {axis.name: at[axis.name] // step for axis in (point, tap) if axis is not None}
    if any(at[name] != coefficient * step for name, coefficient in here.items()):
        return None
    if any({n: c for n, c in b.at.items() if n} != here or b.at.get("", 0) != bounds[0].at.get("", 0) for b in bounds):
        return None
    start = bounds[0].at.get("", 0) if bounds else 0
    if start < 0 and all(b.size is not None for b in bounds):
        return None
    stride, dilation = here.get(point.name, 1) if point else 1, here.get(tap.name, 1) if tap else 1
    last = start + stride * (_extent(point) - 1) + dilation * (_extent(tap) - 1)
    size = min((b.size for b in bounds if b.size is not None), default=last + 1)
    return Direction(_extent(point), _extent(tap), stride, dilation, -start, size)
