"""Walks over the expressions of nests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opmill_graph_ir.loops.index import Index
from opmill_graph_ir.loops.ir import SORTS, Axis, IndexValue, Load, Nest, Phase, Ref
from opmill_graph_ir.loops.walk import children as children
from opmill_graph_ir.loops.walk import expressions as expressions
from opmill_graph_ir.loops.walk import inside as inside
from opmill_graph_ir.loops.walk import roots as roots
from opmill_graph_ir.loops.walk import written as written

from .emit.types import is_wide


def loads(phase: Phase) -> list[Load]:
    """Every distinct load of a phase."""
    return [e for e in expressions(phase) if type(e) is Load]


def accesses(phase: Phase) -> list[Index]:
    """Index of every access of memory."""
    return [*(e.index for e in loads(phase)), *(s.index for s in phase.stores)]


def read(nest: Nest) -> frozenset[str]:
    """Buffers that a nest loads from."""
    return frozenset(e.buffer for p in nest.phases for e in loads(p))


def names_in(phase: Phase) -> frozenset[str]:
    """Names (axes, lets, results, symbols) that a phase mentions, extents of its axes included."""
    out: set[str] = set()
    for e in expressions(phase):
        if type(e) is Ref:
            out.add(e.name)
        elif isinstance(e, (Load, IndexValue)):
            out |= e.index.symbols
    for s in phase.stores:
        out |= s.index.symbols
    for a in phase.axes:
        out |= a.extent.symbols
    return frozenset(out)


def values_of(nest: Nest) -> frozenset[str]:
    """Names of lets and results of reductions and scans."""
    lets = {let.name for p in nest.phases for let in p.lets}
    reduced = {n for p in nest.phases for r in p.reductions for n in r.names}
    return frozenset(lets | reduced | {n for p in nest.phases for s in p.scans for n in s.names})


def shared(nest: Nest) -> int:
    """How many of the first phases only sum what all points of the nest share."""
    axes = {a.name for a in nest.axes}
    plain = (bool(axes) and not (p.stores or p.checks or p.scans or names_in(p) & axes) for p in nest.phases)
    return next((k for k, one in enumerate(plain) if not one), len(nest.phases))


def sorts(nest: Nest) -> bool:
    """Whether rows are put in order: a program holds them whole."""
    return any(s.op in SORTS for p in nest.phases for s in p.scans)


def indirect(nest: Nest) -> bool:
    """Whether memory is accessed at places that values tell."""
    values = values_of(nest)
    return any(i.symbols & values for p in nest.phases for i in accesses(p))


def moved(nest: Nest) -> Iterator[str]:
    """Element types of accesses of the nest's size: those that move along the inner axes or, where there are none, along all outer ones."""
    inner = {a.name for p in nest.phases for a in p.axes}
    outer = {a.name for a in nest.axes if a.extent.constant != 1}
    for p in nest.phases:
        for i, dtype in (*((e.index, e.dtype) for e in loads(p)), *((s.index, s.value.dtype) for s in p.stores)):
            if i.symbols & inner or (not inner and outer <= i.symbols):
                yield dtype


def wide(nest: Nest) -> frozenset[str]:
    """Results of reductions and scans in phases that read data which half precision does not hold."""
    found = [p for p in nest.phases if any(is_wide(e.dtype) for e in loads(p)) or any(type(e) is IndexValue for e in expressions(p))]
    return frozenset([n for p in found for r in p.reductions for n in r.names] + [n for p in found for s in p.scans for n in s.names])


def points(axes: tuple[Axis, ...], sizes: Mapping[str, int]) -> int:
    """Points of a domain, sizes by ``sizes``."""
    total = 1
    for a in axes:
        total *= a.extent.evaluate(sizes)
    return total
