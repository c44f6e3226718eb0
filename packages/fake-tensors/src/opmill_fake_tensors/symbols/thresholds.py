"""Where comparisons of floats that are computed from sizes turn: above one size they are true and below it false, or the other way round.

Sizes are integers, so that a comparison with such a place says the same as one of the size with an integer. Found are those of sums,
multiples and quotients by numbers, of one product of sizes: costs that grow with the number of elements, say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .index import Index
from .real import Operand, Real

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
    """The comparison is ``above`` where ``product`` is ``least`` at least, and not ``above`` elsewhere."""

    product: Index
    least: int
    above: bool


def turn(name: str, left: Operand, right: Operand, least: Callable[[Index], int | None]) -> Turn | bool | None:
    """Of ``left`` and ``right``, compared by ``__name__``. A bool where it is the same for all sizes, None where nothing was found.
    ``least``: how small a product of sizes may be."""
    products = {monomial for side in (left, right) for leaf in _leaves(side) for monomial, _ in leaf.terms if monomial}
    if len(products) != 1:
        return None
    [product] = products
    names = [atom for atom in product if isinstance(atom, str)]
    one, other = _line(left), _line(right)
    if len(set(names)) != len(product) or one is None or other is None:
        return None

    def truth(n: int) -> bool:
        return compared(name, left, right, {**dict.fromkeys(names, 1), names[0]: n})

    size = Index(((product, 1),))
    low = least(size)
    if one.steep == other.steep == 0 or (low is not None and _never_meet(one, other, low)):
        return truth(low or 1)
    if name in ("eq", "ne"):
        return None
    near = _near(one, other)
    truths = list(map(truth, near))
    turns = [k for k in range(1, len(truths)) if truths[k] != truths[k - 1]]
    return Turn(size, near[turns[0]], truths[-1]) if len(turns) == 1 else None


def compared(name: str, left: Operand, right: Operand, values: Mapping[str, int]) -> bool:
    """Whether two sides compare so (``name``: ``lt``, ``ge`` and so on) for these values of their symbols, as floats."""
    one, other = (side.evaluate(values) if isinstance(side, (Real, Index)) else side for side in (left, right))
    return bool(getattr(float(one), f"__{name}__")(float(other)))


def _leaves(value: Operand) -> list[Index]:
    if isinstance(value, Index):
        return [value]
    return [leaf for arg in value.args for leaf in _leaves(arg)] if isinstance(value, Real) else []


def _line(value: Operand) -> Line | None:
    """None where the value is no line over the only product of sizes in it."""
    if isinstance(value, Index):
        slope, offset = (float(sum(c for monomial, c in value.terms if bool(monomial) is wanted)) for wanted in (True, False))
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


def _never_meet(left: Line, right: Line, low: int) -> bool:
    """Whether one of them is greater than the other at ``low`` and at all larger sizes, however they are rounded."""
    if not math.isfinite(left.offset - right.offset):  # the other is finite, and sizes are small
        return math.isfinite(left.slope - right.slope) and not math.isnan(left.offset - right.offset)
    apart = left.plus(right, -1.0)
    if not math.isfinite(apart.steep):
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
