"""Arithmetic on expressions, written as on numbers: what the update rules are written in."""

from __future__ import annotations

from dataclasses import dataclass

from ..loops.ir import Expr
from ..ops.exprs import cast, const, op


@dataclass(frozen=True)
class Number:
    """An expression. Numbers that do not vary from element to element are computed in float64, as Python would, and rounded
    where they meet an element."""

    expr: Expr
    uniform: bool = False

    def _with(self, other: Number | float) -> tuple[Expr, Expr, bool]:
        if not isinstance(other, Number):
            return self.expr, const(other, self.expr.dtype), self.uniform
        if self.uniform == other.uniform:
            return self.expr, other.expr, self.uniform
        dtype = other.expr.dtype if self.uniform else self.expr.dtype
        return cast(self.expr, dtype), cast(other.expr, dtype), False

    def _apply(self, name: str, other: Number | float, swap: bool = False) -> Number:
        a, b, uniform = self._with(other)
        return Number(op(name, b, a) if swap else op(name, a, b), uniform)

    def __add__(self, other: Number | float) -> Number:
        return self._apply("add", other)

    def __sub__(self, other: Number | float) -> Number:
        return self._apply("sub", other)

    def __rsub__(self, other: float) -> Number:
        return self._apply("sub", other, swap=True)

    def __mul__(self, other: Number | float) -> Number:
        return self._apply("mul", other)

    def __truediv__(self, other: Number | float) -> Number:
        return self._apply("div", other)

    def __pow__(self, other: Number) -> Number:
        return self._apply("pow", other)

    def __neg__(self) -> Number:
        return Number(op("neg", self.expr), self.uniform)

    def __abs__(self) -> Number:
        return Number(op("abs", self.expr), self.uniform)

    def sqrt(self) -> Number:
        return Number(op("sqrt", self.expr), self.uniform)

    def maximum(self, other: Number) -> Number:
        return self._apply("max", other)
