"""Walks over the expressions of phases and nests, for schedules and generators alike."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from .ir import Expr, Load, Nest, Op, Phase


def children(expr: Expr) -> tuple[Expr, ...]:
    """What an expression is computed from directly; of a masked load its mask."""
    if type(expr) is Op:
        return expr.args
    if type(expr) is Load and expr.mask is not None:
        return (expr.mask,)
    return ()


@lru_cache(maxsize=4096)
def inside(expr: Expr) -> tuple[Expr, ...]:
    """The expression and all below it, each once."""
    seen: dict[Expr, None] = {}
    stack = [expr]
    while stack:
        e = stack.pop()
        if e not in seen:
            seen[e] = None
            stack.extend(children(e))
    return tuple(seen)


def roots(phase: Phase) -> Iterator[Expr]:
    """The values that a phase computes, in its order."""
    yield from (let.value for let in phase.lets)
    yield from (check.condition for check in phase.checks)
    yield from (r.value for r in phase.reductions)
    yield from (v for s in phase.scans for v in s.values)
    yield from (s.value for s in phase.stores)


def expressions(phase: Phase) -> dict[Expr, None]:
    """Every distinct expression of a phase."""
    return {e: None for root in roots(phase) for e in inside(root)}


def written(nest: Nest) -> frozenset[str]:
    """Buffers that a nest stores to."""
    return frozenset(s.buffer for p in nest.phases for s in p.stores)
