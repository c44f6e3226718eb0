"""Walks over the expressions of nests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opmill_graph_ir.loops.index import Index
from opmill_graph_ir.loops.ir import IndexValue, Load, Nest, Op, Phase
from opmill_graph_ir.loops.walk import children as children
from opmill_graph_ir.loops.walk import expressions as expressions
from opmill_graph_ir.loops.walk import inside as inside
from opmill_graph_ir.loops.walk import roots as roots
from opmill_graph_ir.loops.walk import written as written

from .emit.primitives import work


def indices(phase: Phase) -> Iterator[tuple[Index, bool]]:
    """Index of every access of memory, and whether it is a store."""
    for e in expressions(phase):
        if isinstance(e, Load):
            yield e.index, False
    for store in phase.stores:
        yield store.index, True


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
    total = 1 + sum(40 if s.op == "logaddexp" else 1 if s.op == "sum" and s.dtype.startswith("int") else 4 for s in phase.scans)
    for e in expressions(phase):
        if isinstance(e, Op):
            total += work(e.name)
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
