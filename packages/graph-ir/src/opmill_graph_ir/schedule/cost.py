"""What expressions cost, in rough units of one cheap vector instruction."""

from __future__ import annotations

from collections.abc import Iterable

from ..loops.ir import Expr, Op
from ..loops.primitives import PRIMITIVES
from .rewrite import walk

EXPENSIVE = 20
"""From here on a value is rather stored than computed twice."""


def cost(*roots: Expr) -> int:
    """Cost of evaluating the expressions once at one point, shared parts once; reads not counted."""
    return cost_of(walk(*roots))


def cost_of(parts: Iterable[Expr]) -> int:
    """Cost of evaluating each of these distinct sub-expressions once."""
    return sum([PRIMITIVES[e.name].cost for e in parts if type(e) is Op])
