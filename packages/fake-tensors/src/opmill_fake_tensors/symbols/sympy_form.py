"""Index expressions as sympy's, and back. sympy, which torch requires, is imported when it is first needed: most compiles never do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .index import ONE, ZERO, Atom, FloorDiv, Index, floordiv, index, mod

if TYPE_CHECKING:
    from .facts import Bound

NO_RANGES: Mapping[str, tuple[int, Bound]] = {}


@lru_cache(1)
def sympy() -> Any:
    """The package."""
    import sympy

    return sympy


def to_sympy(expr: Index, ranges: Mapping[str, tuple[int, Bound]] = NO_RANGES) -> Any:
    """The expression with integer symbols of the same names, ``floor`` for floor division and ``Mod`` for the remainder. ``ranges`` (both
    ends included) become sympy's assumptions of the symbols: positive, or not negative."""

    def atom(part: Atom) -> Any:
        if isinstance(part, str):
            return symbol(part, ranges.get(part, (0, None))[0])
        numerator, denominator = whole(part.numerator), whole(part.denominator)
        return sympy().floor(numerator / denominator) if isinstance(part, FloorDiv) else sympy().Mod(numerator, denominator)

    def whole(part: Index) -> Any:
        total = sympy().Integer(0)
        for monomial, coefficient in part.terms:
            product = sympy().Integer(coefficient)
            for factor in monomial:
                product = product * atom(factor)
            total = total + product
        return total

    return whole(expr)


def symbol(name: str, low: int) -> Any:
    """The integer symbol of a size that is ``low`` at least."""
    if low > 0:
        return sympy().Symbol(name, integer=True, positive=True)
    return sympy().Symbol(name, integer=True, nonnegative=True) if low == 0 else sympy().Symbol(name, integer=True)


def from_sympy(expr: Any) -> Index:
    """The Index that means the same: sums, products, powers, ``floor`` of quotients and ``Mod``. Raises ValueError for anything else."""
    if expr.is_Integer:
        return index(int(expr))
    if expr.is_Symbol:
        return index(expr.name)
    if expr.is_Add:
        return sum(map(from_sympy, expr.args), ZERO)
    if expr.is_Mul:
        product = ONE
        for factor in expr.args:
            product = product * from_sympy(factor)
        return product
    if expr.is_Pow and expr.exp.is_Integer and expr.exp >= 0:
        product = ONE
        for _ in range(int(expr.exp)):
            product = product * from_sympy(expr.base)
        return product
    if expr.func is sympy().floor:
        numerator, denominator = sympy().fraction(sympy().together(expr.args[0]))
        return floordiv(from_sympy(numerator), from_sympy(denominator))
    if expr.func is sympy().Mod:
        return mod(from_sympy(expr.args[0]), from_sympy(expr.args[1]))
    raise ValueError(f"{expr} is no expression of sizes")
