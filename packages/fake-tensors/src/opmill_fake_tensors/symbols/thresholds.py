"""Where comparisons of floats that are computed from sizes turn: above one size they are true and below it false, or the other way round.

Sizes are integers, so that a comparison with such a place says the same as one of the size with an integer. Found are those of sums,
multiples and quotients by numbers, of one product or sum of sizes, and of rounded quotients: costs that grow with the number of
elements, say, of which each process has a part."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from .index import Index
from .real import FUNCTIONS, Operand, Real

ROUNDING = 64 * 2.0**-52
"""What the operations of an expression may be wrong by, relative to the numbers in it."""
FURTHEST = 1 << 48
"""Sizes are smaller."""
AROUND = range(-2, 4)
"""Integers near the place that are tried."""


class Line(NamedTuple):
    """``slope * n + offset``; ``steep`` and ``far`` are what both would be if nothing in their sums cancelled."""

    slope: float
    offset: float
    steep: float
    far: float

    def plus(self, other: Line, sign: float = 1.0) -> Line:
        return Line(self.slope + sign * other.slope, self.offset + sign * other.offset, self.steep + other.steep, self.far + other.far)

    def times(self, factor: float) -> Line:
        return Line(self.slope * factor, self.offset * factor, self.steep * abs(factor), self.far * abs(factor))


class Turn(NamedTuple):
    """The comparison is ``above`` where ``size`` is ``least`` at least, and not ``above`` elsewhere."""

    size: Index
    least: int
    above: bool


def turn(name: str, left: Operand, right: Operand, least: Callable[[Index], int | None]) -> Turn | bool | None:
    """Of ``left`` and ``right``, compared by ``__name__``. A bool where it is the same for all sizes, None where nothing was found.
    ``least``: how small a size may be, where it is known."""
    moving = {found[0] for side in (left, right) for leaf in _leaves(side) if (found := _parted(leaf))[0].terms}
    if len(moving) != 1:
        return None
    [size] = moving
    one, other = _line(left), _line(right)
    if one is None or other is None:
        return None

    def truth(n: int) -> bool:
        return bool(getattr(float(_at(left, n)), f"__{name}__")(float(_at(right, n))))

    low = least(size)
    if one.steep == other.steep == 0 or _never_meet(one, other, low):
        return truth(low or 1)
    near = _near(one, other)
    truths = list(map(truth, near))
    if name in ("eq", "ne"):
        return truths[0] if len(set(truths)) == 1 and truths[0] is (name == "ne") else None
    turns = [k for k in range(1, len(truths)) if truths[k] != truths[k - 1]]
    return Turn(size, near[turns[0]], truths[-1]) if len(turns) == 1 else None


def _parted(leaf: Index) -> tuple[Index, int, int]:
    """``size``, ``often`` and ``rest`` of a leaf that is ``size * often + rest``, where ``size`` is no multiple of anything else."""
    terms = tuple((monomial, count) for monomial, count in leaf.terms if monomial)
    often = math.gcd(*(count for _, count in terms)) * (-1 if terms and terms[0][1] < 0 else 1)
    return (
        Index(tuple((monomial, count // often) for monomial, count in terms)),
        often,
        sum(n for monomial, n in leaf.terms if not monomial),
    )


def _at(value: Operand, n: int) -> Any:
    """What a side is as Python computes it where the only size in it is ``n``."""
    if isinstance(value, Index):
        _, often, rest = _parted(value)
        return often * n + rest
    return FUNCTIONS[value.op](*(_at(arg, n) for arg in value.args)) if isinstance(value, Real) else value


def _leaves(value: Operand) -> list[Index]:
    if isinstance(value, Index):
        return [value]
    return [leaf for arg in value.args for leaf in _leaves(arg)] if isinstance(value, Real) else []


def _line(value: Operand) -> Line | None:
    """None where the value is no line over the only size in it."""
    if isinstance(value, Index):
        slope, offset = map(float, _parted(value)[1:])
        return Line(slope, offset, abs(slope), abs(offset))
    if not isinstance(value, Real):
        return Line(0.0, float(value), 0.0, abs(float(value)))
    args = [_line(arg) for arg in value.args]
    match value.op, args:
        case "float", [Line() as line]:
            return line
        case "neg", [Line() as line]:
            return line.times(-1.0)
        case (("add" | "sub"), [Line() as one, Line() as other]):
            return one.plus(other, 1.0 if value.op == "add" else -1.0)
        case "mul", [Line() as one, Line() as other] if not (one.steep and other.steep):
            return one.times(other.offset) if one.steep else other.times(one.offset)
        case "truediv", [Line() as one, Line() as other] if not other.steep and other.offset:
            return one.times(1.0 / other.offset)
    return None


def _never_meet(left: Line, right: Line, low: int | None) -> bool:
    """Whether one of them is greater than the other at ``low`` and at all larger sizes, however they are rounded; at all sizes where
    ``low`` is None."""
    if not math.isfinite(left.offset - right.offset):  # the other is finite, and sizes are small
        return math.isfinite(left.slope - right.slope) and not math.isnan(left.offset - right.offset)
    apart = left.plus(right, -1.0)
    if not math.isfinite(apart.steep):
        return False
    if abs(apart.slope) <= ROUNDING * apart.steep:  # the same of the size is in both
        return abs(apart.offset) > ROUNDING * (2 * apart.steep * FURTHEST + apart.far)
    if low is None:
        return False
    at = apart.slope * low + apart.offset
    growing = apart.slope * at >= 0 and (apart.slope != 0 or apart.steep == 0)
    return (
        growing and abs(at) > ROUNDING * (apart.steep * low + apart.far) and (apart.slope == 0 or abs(apart.slope) > ROUNDING * apart.steep)
    )


def _near(left: Line, right: Line) -> list[int]:
    """Integers around the place where both are equal; none where rounding may decide further away, too."""
    apart = left.plus(right, -1.0)
    if apart.slope == 0 or not abs(apart.offset / apart.slope) < FURTHEST:
        return []
    place = -apart.offset / apart.slope
    if not abs(apart.slope) > ROUNDING * (apart.steep * (abs(place) + 1) + apart.far):
        return []
    return [math.floor(place) + n for n in AROUND]


__all__ = ["Turn", "turn"]
