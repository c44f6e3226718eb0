"""Walks over the expressions of nests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from opmill_graph_ir.loops.index import Index
from opmill_graph_ir.loops.ir import Expr, IndexValue, Load, LoopKernel, Nest, Op, Phase

TRANSCENDENTAL = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid pow atan2 "
    "hypot fmod mod floordiv".split()
)


def children(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Op):
        return expr.args
    if isinstance(expr, Load) and expr.mask is not None:
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
    """The values that a phase computes."""
    for let in phase.lets:
        yield let.value
    for check in phase.checks:
        yield check.condition
    for reduction in phase.reductions:
        yield reduction.value
    for store in phase.stores:
        yield store.value


def expressions(phase: Phase) -> dict[Expr, None]:
    """Every distinct expression of a phase."""
    return {e: None for root in roots(phase) for e in inside(root)}


def indices(phase: Phase) -> Iterator[tuple[Index, bool]]:
    """Index of every access of memory, and whether it is a store."""
    for e in expressions(phase):
        if isinstance(e, Load):
            yield e.index, False
    for store in phase.stores:
        yield store.index, True


def written(nest: Nest) -> frozenset[str]:
    return frozenset(s.buffer for p in nest.phases for s in p.stores)


def all_expressions(kernel: LoopKernel) -> Iterator[Expr]:
    for nest in kernel.nests:
        for phase in nest.phases:
            yield from expressions(phase)


def names_in(phase: Phase) -> frozenset[str]:
    """Names (axes, lets, results, symbols) that a phase mentions."""
    out: set[str] = set()
    for e in expressions(phase):
        if isinstance(e, (Load, IndexValue)):
            out |= e.index.symbols
        out |= {getattr(e, "name", "")} if not isinstance(e, Op) else set()
    for store in phase.stores:
        out |= store.index.symbols
    return frozenset(out)


def op_cost(phase: Phase) -> int:
    """Work of one point, about in cycles of a vector unit."""
    total = 1
    for e in expressions(phase):
        if isinstance(e, Op):
            total += 12 if e.name in TRANSCENDENTAL else 4 if e.name in ("div", "sqrt", "rsqrt", "reciprocal") else 1
        elif isinstance(e, Load):
            total += 1
    return total


def bounds_of(nest: Nest, symbols: Mapping[str, int]) -> dict[str, int]:
    """Extents of all axes of a nest, as far as they are numbers; size symbols by ``symbols``."""
    out = dict(symbols)
    for axis in (*nest.axes, *(a for p in nest.phases for a in p.axes)):
        bounds = axis.extent.bounds({k: v + 1 for k, v in symbols.items()})
        out[axis.name] = bounds[1] if bounds else 1 << 40
    return out
