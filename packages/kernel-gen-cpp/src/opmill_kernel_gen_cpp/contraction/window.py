"""How the elements that a convolution reads lie: an index and a mask taken apart into image, channel, line and column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from opmill_graph_ir.loops.index import ONE, ZERO, Index, index
from opmill_graph_ir.loops.ir import Axis, Const, Expr, IndexValue, Load, Op
from opmill_graph_ir.loops.masks import conjuncts

Line = dict[str, Index]
"""An index that is linear in axes: coefficient by axis, what is left under ``""``. Coefficients may be made of size symbols."""


@dataclass(frozen=True)
class Direction:
    """Along lines or columns: the source's coordinate is ``stride * point + dilation * tap - pad``, and outside ``[0, size)`` it is
    zero."""

    points: Index
    taps: int
    stride: int
    dilation: int
    pad: int
    size: Index


@dataclass(frozen=True)
class Places:
    """What the axes of the points stand for."""

    image: Axis | None
    line: Axis | None
    column: Axis


@dataclass(frozen=True)
class Window:
    """What is read: steps in elements of the source, columns being next to each other. ``offset``: of the first line's first column."""

    places: Places
    images: Index
    image_step: Index
    channels: int
    channel_step: Index
    line_step: Index
    lines: Direction
    columns: Direction
    offset: Index


_FAR = 64
"""Elements from which on taps without bounds rather lie on different lines."""


def linear(i: Index, axes: Sequence[Axis]) -> Line | None:
    """``i`` by coefficients; None where it is not linear in ``axes``."""
    names = {a.name for a in axes}
    out: Line = {}
    for name in names & i.symbols:
        step = i.stride_of(name)
        if step is None or step.symbols & names:
            return None
        out[name] = step
    return out | {"": i.substitute(dict.fromkeys(names, 0))}


def quotient(a: Index, b: Index) -> int | None:
    """The number ``k`` with ``a == k * b``; None where there is none."""
    if not a.terms or not b.terms or a.terms[0][1] % b.terms[0][1]:
        return None
    k = a.terms[0][1] // b.terms[0][1]
    return k if b * k == a else None


def is_positive(i: Index) -> bool:
    """Whether it certainly is: sizes are."""
    return bool(i.terms) and all(c > 0 for _, c in i.terms)


def window_of(load: Load, points: Sequence[Axis], taps: Sequence[Axis], channels: bool = True, apart: bool = False) -> Window | None:
    """The window that ``load`` moves over ``points`` (image, line, column; those that there are, outermost first), its taps over ``taps``
    (channel unless there are none, line, column), of known extents. None where it has another form. ``apart``: of two axes of points the
    first is rather of images, since results of its steps do not follow each other."""
    at, bounds = linear(load.index, (*points, *taps)), _bounds(load, (*points, *taps))
    if at is None or bounds is None or not 1 <= len(points) <= 3 or not 1 <= len(taps) <= 3:
        return None
    if not all(is_positive(at.get(a.name, ZERO)) for a in (*points, *taps)):
        return None
    found = (_in_places(places, taps, at, bounds, channels) for places in _places(points, taps, at, bounds, apart))
    return next((w for w in found if w is not None), None)


def _in_places(places: Places, taps: Sequence[Axis], at: Line, bounds: Sequence[_Bound], channels: bool) -> Window | None:
    channel, tap_line, tap_column = _taps(taps, places, at, bounds)
    if not channels and channel is not None:
        if tap_line is not None:
            return None
        channel, tap_line = None, channel
    return _window(places, (channel, tap_line, tap_column), at, bounds)


def _window(places: Places, taps: tuple[Axis | None, Axis | None, Axis | None], at: Line, bounds: Sequence[_Bound]) -> Window | None:
    channel, tap_line, tap_column = taps
    vertical = [b for b in bounds if _mentions(b, places.line, tap_line)]
    horizontal = [b for b in bounds if _mentions(b, places.column, tap_column)]
    if len(vertical) + len(horizontal) != len(bounds) or any(b in vertical for b in horizontal):
        return None
    step = _line_step(places.line, tap_line, at, vertical)
    lines = None if step is None else _direction(places.line, tap_line, at, vertical, step)
    columns = _direction(places.column, tap_column, at, horizontal, ONE)
    if step is None or lines is None or columns is None:
        return None
    offset = at[""] + step * lines.pad + columns.pad
    known = _known(channel)
    return Window(places, _extent(places.image), _step(places.image, at), known, _step(channel, at), step, lines, columns, offset)


def _places(points: Sequence[Axis], taps: Sequence[Axis], at: Line, bounds: Sequence[_Bound], apart: bool) -> list[Places]:
    """The roles that one to three axes may have, the better ones first. The first of two is a line or an image: an image where columns do
    not follow each other from one of its steps to the next, and no taps tell of lines."""
    column = points[-1]
    if len(points) != 2:
        return [Places(points[-3] if len(points) > 2 else None, points[-2] if len(points) > 1 else None, column)]
    line, image = Places(None, *points), Places(points[0], None, column)
    if any(points[0].name in b.at for b in bounds):
        return [line]
    whole = at[column.name] == ONE and column.extent != at[points[0].name]
    return [image, line] if apart or (whole and len(taps) == 1) else [line, image]


def _extent(axis: Axis | None) -> Index:
    return ONE if axis is None else axis.extent


def _known(axis: Axis | None) -> int:
    """The extent of taps, or of what is not there."""
    return 1 if axis is None else axis.extent.constant or 0


def _step(axis: Axis | None, at: Line) -> Index:
    return ZERO if axis is None else at.get(axis.name, ZERO)


# ---- masks -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bound:
    """``at >= 0``, or ``at < size`` where ``size`` is given. ``at`` has numbers for coefficients."""

    at: dict[str, int]
    size: Index | None


def _bounds(load: Load, axes: Sequence[Axis]) -> list[_Bound] | None:
    """The mask as a conjunction of bounds; None where it is something else, or what stands in for masked elements is not zero."""
    if load.mask is None:
        return []
    if load.other is not None and load.other.value != 0:
        return None
    found = [_bound(e, axes) for e in conjuncts(load.mask)]
    return None if None in found else [b for b in found if b is not None]


def _bound(e: Expr, axes: Sequence[Axis]) -> _Bound | None:
    if type(e) is not Op or e.name not in ("ge", "lt"):
        return None
    value, limit = e.args
    if type(value) is not IndexValue or type(limit) not in (Const, IndexValue):
        return None
    size = index(int(limit.value)) if type(limit) is Const else limit.index  # type: ignore[union-attr]
    found = linear(value.index, axes)
    if found is None or size.symbols & {a.name for a in axes}:
        return None
    if e.name == "ge":
        found, size = {**found, "": found[""] - size}, None
    at = {name: known for name, c in found.items() if (known := c.constant) is not None}
    return _Bound(at, size) if len(at) == len(found) else None


# ---- directions ------------------------------------------------------------------------------------------------------------


def _mentions(bound: _Bound, *axes: Axis | None) -> bool:
    return any(a is not None and a.name in bound.at for a in axes)


def _taps(taps: Sequence[Axis], places: Places, at: Line, bounds: Sequence[_Bound]) -> tuple[Axis | None, Axis | None, Axis | None]:
    """(channel, line, column) among the taps. Any choice is right; bounds, and then the distance that a tap steps, tell the one that is
    meant."""
    if len(taps) == 3:
        return taps[0], taps[1], taps[2]
    last, line, column = taps[-1], places.line, places.column
    with_last = [b for b in bounds if last.name in b.at]
    if with_last:
        is_column = any(_mentions(b, column) for b in with_last) or line is None
    elif len(taps) == 1:
        return (None, None, last) if _overlap(at[last.name], last.extent, at[column.name]) else (last, None, None)
    else:
        is_column = _is_near(at[last.name], index(_FAR) if line is None else at[line.name])
    first = taps[0] if len(taps) == 2 else None
    if not is_column:
        return first, last, None
    if first is not None and any(first.name in b.at for b in bounds):
        return None, first, last
    return first, None, last


def _overlap(step: Index, taps: Index, column: Index) -> bool:
    """Whether the taps of a column reach into the next one, going no further at a time than columns do."""
    known, many, stride = step.constant, taps.constant, column.constant
    return known is not None and many is not None and stride is not None and known <= stride < known * many


def _is_near(step: Index, line: Index) -> bool:
    """Whether ``step`` is less than a line; steps that depend on sizes are lines."""
    known, limit = step.constant, line.constant
    return known is not None and (limit is None or known < limit)


def _line_step(line: Axis | None, tap: Axis | None, at: Line, bounds: Sequence[_Bound]) -> Index | None:
    """Elements from one line of the source to the next."""
    for axis in (line, tap):
        for b in bounds:
            if axis is not None and axis.name in b.at:
                return _divided(at[axis.name], max(b.at[axis.name], 1))
    steps = [at[axis.name] for axis in (line, tap) if axis is not None]
    if not steps:
        return ONE
    common = gcd(*(c for i in steps for _, c in i.terms))
    first = _divided(steps[0], gcd(*(c for _, c in steps[0].terms)) // common)
    return first if first is not None and all(quotient(i, first) for i in steps) else None


def _divided(i: Index, by: int) -> Index | None:
    """``i / by`` where that is an index."""
    return Index(tuple((m, c // by) for m, c in i.terms)) if all(c % by == 0 for _, c in i.terms) else None


def _direction(point: Axis | None, tap: Axis | None, at: Line, bounds: Sequence[_Bound], step: Index) -> Direction | None:
    """What the bounds say of one direction; without bounds nothing is outside."""
    here = {axis.name: quotient(at[axis.name], step) for axis in (point, tap) if axis is not None}
    if None in here.values():
        return None
    if any({n: c for n, c in b.at.items() if n} != here or b.at[""] != bounds[0].at[""] for b in bounds):
        return None
    start = bounds[0].at[""] if bounds else 0
    if start < 0 and all(b.size is not None for b in bounds):
        return None
    stride, dilation = (1 if axis is None else here[axis.name] or 1 for axis in (point, tap))
    last = (_extent(point) - 1) * stride + (start + dilation * (_known(tap) - 1))
    size = _smallest({b.size for b in bounds if b.size is not None} or {last + 1})
    return None if size is None else Direction(_extent(point), _known(tap), stride, dilation, -start, size)


def _smallest(sizes: set[Index]) -> Index | None:
    """The smallest; None where that is not known."""
    numbers = [n for i in sizes if (n := i.constant) is not None]
    return sizes.pop() if len(sizes) == 1 else index(min(numbers)) if len(numbers) == len(sizes) else None
