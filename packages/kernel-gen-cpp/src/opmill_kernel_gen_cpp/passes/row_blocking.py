"""Rows of a product beside each other: what several rows are multiplied with, a matrix, is read once for all of them."""

from __future__ import annotations

from dataclasses import replace

from opmill_graph_ir.loops.index import Index, index
from opmill_graph_ir.loops.ir import Axis, Load, Nest, Phase, Ref
from opmill_graph_ir.schedule.coalesce import map_phase
from opmill_graph_ir.schedule.rewrite import Rewriter

from .. import walk
from ..emit.byte_products import is_of_bytes

MOST = 8
"""Rows whose sums are kept in registers together."""
_SUMS = 16
"""Sums that are: of as many columns as fit, for each of which the rows would be read again."""
_COST = 8


def block_rows(nest: Nest) -> Nest:
    """The nest with a few points of an outer axis done together, where a sum reads for all of them what is large."""
    inner = [p for p in nest.phases if p.axes]
    if len(inner) != 1 or any(p.checks or p.scans or (p.reductions and not p.axes) for p in nest.phases) or _reads_own(nest):
        return nest
    [phase] = inner
    if phase.stores or not phase.reductions or any(r.op != "sum" for r in phase.reductions) or walk.op_cost(phase) > _COST:
        return nest
    for axis in nest.axes:
        together = _together(axis)
        outer = {a.name for a in nest.axes} - {axis.name}
        if together and outer and _is_shared(nest, phase, axis, outer):
            return _with_columns(_written(nest, axis, together), together * len(phase.reductions))
    return _with_columns(nest, len(phase.reductions)) if is_of_bytes(nest) else nest  # the row is worth reading once


def _with_columns(nest: Nest, sums: int) -> Nest:
    """The same with columns together, too."""
    [phase] = [p for p in nest.phases if p.axes]
    for axis in nest.axes:
        n = axis.extent.constant or 1
        columns = next((k for k in (4, 3, 2) if k * sums <= _SUMS and n % k == 0), 1)
        if n > 4 * MOST and columns > 1 and _is_shared(nest, phase, axis, set()):
            return _written(nest, axis, columns)
    return nest


def _together(axis: Axis) -> int:
    """How many rows of it are done at a time; 0 where that is only one, or there are not few."""
    n = axis.extent.constant or 0
    if not 1 < n <= 4 * MOST:
        return 0
    most = max(k for k in range(1, MOST + 1) if n % k == 0)
    return most if most > 1 else 0


def _reads_own(nest: Nest) -> bool:
    stored = walk.written(nest)
    return any(isinstance(e, Load) and e.buffer in stored for p in nest.phases for e in walk.expressions(p))


def _is_shared(nest: Nest, phase: Phase, rows: Axis, outer: set[str]) -> bool:
    """Whether each reduction reads something along the inner axes that is the same for all ``rows``, and varies with all ``outer``
    axes."""
    within = {a.name for a in phase.axes}
    names = {let.name for p in nest.phases for let in p.lets}
    for r in phase.reductions:
        loads = [e for e in walk.inside(r.value) if isinstance(e, Load)]
        if names & {s for e in loads for s in e.index.symbols} or any(e.mask is not None for e in loads):
            return False
        wide = [e for e in loads if e.index.symbols & within]
        if not any(rows.name not in e.index.symbols and outer <= e.index.symbols for e in wide):
            return False
        if any(isinstance(e, Ref) for e in walk.inside(r.value)) or not any(rows.name in e.index.symbols for e in wide):
            return False
    return True


def _written(nest: Nest, rows: Axis, together: int) -> Nest:
    names = {let.name: let.value.dtype for p in nest.phases for let in p.lets}
    names |= {r.names[0]: r.dtype for p in nest.phases for r in p.reductions}
    blocks = (rows.extent.constant or 0) // together
    extents: dict[str, int | Index] = {a.name: a.extent for p in nest.phases for a in (*nest.axes, *p.axes)} | {rows.name: blocks}
    each = []
    for k in range(together):
        symbols = {rows.name: index(rows.name) * together + k if blocks > 1 else index(k)} | {n: index(f"{n}_{k}") for n in names}
        refs = {n: Ref(f"{n}_{k}", dtype) for n, dtype in names.items()}
        each.append((k, Rewriter(symbols, refs, extents=extents)))
    phases = []
    for phase in nest.phases:
        copies = [_renamed(map_phase(phase, rewrite, phase.axes), k) for k, rewrite in each]
        parts = {name: tuple(x for c in copies for x in getattr(c, name)) for name in ("lets", "reductions", "stores")}
        phases.append(replace(phase, **parts))
    left = (Axis(rows.name, index(blocks)),) if blocks > 1 else ()
    return replace(nest, axes=(*(a for a in nest.axes if a != rows), *left), phases=tuple(phases))


def _renamed(phase: Phase, k: int) -> Phase:
    lets = tuple(replace(let, name=f"{let.name}_{k}") for let in phase.lets)
    return replace(phase, lets=lets, reductions=tuple(replace(r, names=(f"{r.names[0]}_{k}",)) for r in phase.reductions))
