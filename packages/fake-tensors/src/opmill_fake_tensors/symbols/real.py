"""Floating-point expressions over sizes (``n / 2``, ``n ** 0.5``), as data."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Union

from msgspec import Struct

from .index import Index, floordiv

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "abs")},
    **{name: getattr(math, name) for name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")},
    "float": float,
    "round": round,
}
"""What the operations of a :class:`Real` are in Python."""

Operand = Union["Real", Index, float, int]


class Real(Struct, frozen=True):
    """``FUNCTIONS[op](*args)``; an ``Index`` among the arguments is a Python int."""

    op: str
    args: tuple[Operand, ...]

    def evaluate(self, values: Mapping[str, int]) -> Any:
        return FUNCTIONS[self.op](*(a.evaluate(values) if isinstance(a, (Real, Index)) else a for a in self.args))

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset().union(*(a.symbols for a in self.args if isinstance(a, (Real, Index))))

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.args))})"


def fraction(value: Real) -> tuple[Index, Index] | None:
    """Numerator and positive constant denominator, where ``value`` is exactly that quotient, or its nearest double.

    Rounding the nearest double down gives what rounding the quotient down gives, as long as the numerator is below 2**53: sizes are."""
    match value:
        case Real("float", (Index() as number,)):
            return number, Index((((), 1),))
        case Real("truediv", (Index() as number, Index() as by)) if (by.constant or 0) > 0:
            return number, by
        case Real("mul", (Real("float", (Index() as number,)), float(factor))) | Real(
            "mul", (float(factor), Real("float", (Index() as number,)))
        ):
            return _scaled(number, factor)
        case Real("truediv", (Real("float", (Index() as number,)), float(by_number))) if by_number > 0 and by_number.is_integer():
            return number, Index((((), int(by_number)),))
    return None


def _scaled(number: Index, factor: float) -> tuple[Index, Index] | None:
    """By a factor of few bits, so that no product of a size is rounded."""
    if not math.isfinite(factor):
        return None
    above, below = factor.as_integer_ratio()
    return (number * above, Index((((), below),))) if abs(above) < 1 << 16 and below < 1 << 16 else None


def rounded_down(value: Real) -> Index | None:
    """``floor(value)`` as an expression, where it is one."""
    found = fraction(value)
    return None if found is None else floordiv(*found)


def rounded_up(value: Real) -> Index | None:
    """``ceil(value)`` as an expression, where it is one."""
    found = fraction(value)
    return None if found is None else -floordiv(-found[0], found[1])
