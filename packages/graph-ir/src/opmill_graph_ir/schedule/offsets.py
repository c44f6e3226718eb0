"""Kernels that differ by nothing but where in their buffers they begin become one.

A loop over time that is written out (a recurrent layer, an unrolled scan) does the same at each step, a row further on: with the first
element as a constant each step would be a kernel to build. As a number that is passed like a size, they are one kernel for any length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..loops.index import ZERO, Index, index
from ..loops.ir import Expr, Load, LoopKernel, Phase
from ..loops.walk import expressions
from .coalesce import map_phase
from .rewrite import Rewriter

_FEW = 3
"""So many kernels that differ by constants alone are worth a number that no compiler knows."""

Key = tuple[object, ...]


def beginnings(kernel: LoopKernel) -> tuple[int, ...]:
    """For each buffer that is only read or only written, the smallest constant in its indices; 0 where that is negative (behind a mask),
    and for the others."""
    found: dict[str, int] = {}
    for phase in (p for nest in kernel.nests for p in nest.phases):
        places = [(e.buffer, e.index) for e in expressions(phase) if type(e) is Load] + [(s.buffer, s.index) for s in phase.stores]
        for buffer, at in places:
            found[buffer] = min(_constant(at), found.get(buffer, _constant(at)))
    return tuple(max(found.get(b.name, 0), 0) if b.role != "inout" else 0 for b in kernel.buffers)


def moved(kernel: LoopKernel, by: Mapping[str, Index]) -> LoopKernel:
    """The kernel with all indices of some buffers moved."""
    moving = _Moved(by)
    return replace(kernel, nests=tuple(replace(nest, phases=tuple(map(moving.phase, nest.phases))) for nest in kernel.nests))


def shared(kernels: Sequence[LoopKernel]) -> dict[LoopKernel, tuple[LoopKernel, tuple[int, ...]]]:
    """For those that can be one with others: the kernel, and the values of its symbols that are not theirs (which come first)."""
    likely: dict[Key, list[LoopKernel]] = defaultdict(list)
    for kernel in kernels:
        likely[kernel.name, kernel.buffers, kernel.symbols, len(kernel.nests)].append(kernel)
    found: dict[LoopKernel, tuple[LoopKernel, tuple[int, ...]]] = {}
    for group in (g for g in likely.values() if len(g) >= _FEW):
        alike: dict[LoopKernel, list[tuple[LoopKernel, tuple[int, ...]]]] = defaultdict(list)
        for kernel in group:
            at = beginnings(kernel)
            alike[moved(kernel, {b.name: index(-n) for b, n in zip(kernel.buffers, at, strict=True) if n})].append((kernel, at))
        for base, members in alike.items():
            if len(members) >= _FEW:
                found |= _one(base, members)
    return found


def _one(base: LoopKernel, members: Sequence[tuple[LoopKernel, tuple[int, ...]]]) -> dict[LoopKernel, tuple[LoopKernel, tuple[int, ...]]]:
    columns = list(zip(*(at for _, at in members), strict=True))
    varying = [k for k, column in enumerate(columns) if len(set(column)) > 1]
    symbols = {k: f"s{len(base.symbols) + number}" for number, k in enumerate(varying)}
    by = {b.name: index(symbols.get(k, columns[k][0])) for k, b in enumerate(base.buffers)}
    kernel = replace(moved(base, by), symbols=(*base.symbols, *symbols.values()))
    return {member: (kernel, tuple(at[k] for k in varying)) for member, at in members}


def _constant(at: Index) -> int:
    return dict(at.terms).get((), 0)


class _Moved(Rewriter):
    """Moves the indices of some buffers."""

    def __init__(self, by: Mapping[str, Index]) -> None:
        super().__init__()
        self.by = by

    def _load(self, expr: Load) -> Expr:
        mask = None if expr.mask is None else self(expr.mask)
        return replace(expr, index=expr.index + self.by.get(expr.buffer, ZERO), mask=mask)

    def phase(self, phase: Phase) -> Phase:
        kept = map_phase(phase, self, phase.axes)
        return replace(kept, stores=tuple(replace(s, index=s.index + self.by.get(s.buffer, ZERO)) for s in kept.stores))

    _RULES = {**Rewriter._RULES, Load: _load}
