"""What expressions cost, in rough units of one cheap vector instruction."""

from __future__ import annotations

from ..loops.ir import Expr, Op
from .rewrite import walk

_COSTS = {
    **dict.fromkeys("cast bitcast".split(), 0),
    **dict.fromkeys("sqrt rsqrt div reciprocal floordiv truncdiv mod fmod".split(), 4),
    **dict.fromkeys("exp exp2 expm1 log log2 log10 log1p sigmoid tanh erf erfc pow sin cos tan".split(), 20),
    "philox": 40,
    "coin": 20,
    **dict.fromkeys("asin acos atan sinh cosh asinh acosh atanh erfinv lgamma digamma atan2 hypot nextafter".split(), 40),
}
EXPENSIVE = 20
"""From here on a value is rather stored than computed twice."""


def op_cost(name: str) -> int:
    return _COSTS.get(name, 1)


def cost(*roots: Expr) -> int:
    """Cost of evaluating the expressions once at one point, shared parts once; reads not counted."""
    return sum(op_cost(e.name) for e in walk(*roots) if type(e) is Op)
