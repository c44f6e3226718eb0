"""What the generator takes, and why it leaves the rest."""

from __future__ import annotations

from collections.abc import Iterator

from opmill_graph_ir.loops.ir import SORTS, LoopKernel, Op

from . import walk
from .emit.primitives import CONVERSIONS, LOGICAL, REFUSED, ROWS
from .emit.scans import FLOATS_ONLY, OPS
from .emit.types import TYPES

_REDUCTIONS = {"sum", "prod", "max", "min", "any", "all", "xor", "argmax", "argmin", "welford"}


def refusal(kernel: LoopKernel) -> str | None:
    """Why the kernel cannot be built; None where it can."""
    for name in _names(kernel):
        if not name.isidentifier() or not name.isascii():
            return f"name {name!r}"
    if kernel.attention is not None:
        return "attention in tiles"
    for buffer in kernel.buffers:
        if buffer.dtype not in TYPES:
            return f"element type {buffer.dtype}"
    for nest in kernel.nests:
        for phase in nest.phases:
            for e in walk.expressions(phase):
                if e.dtype not in TYPES:
                    return f"element type {e.dtype}"
                if isinstance(e, Op) and (reason := _op_refusal(e)) is not None:
                    return reason
            for r in phase.reductions:
                if r.op not in _REDUCTIONS:
                    return f"reduction {r.op}"
                if r.dtype not in TYPES or TYPES[r.dtype].kind == "raw":
                    return f"reduction in {r.dtype}"
            for s in phase.scans:
                if s.op in SORTS:
                    return "rows in order"
                kinds = ("float",) if s.op in FLOATS_ONLY else ("float", "int", "uint")
                if s.op not in OPS or s.dtype not in TYPES or TYPES[s.dtype].kind not in kinds:
                    return f"scan {s.op} in {s.dtype}"
    return None


def _names(kernel: LoopKernel) -> Iterator[str]:
    yield from (b.name for b in kernel.buffers)
    yield from kernel.symbols
    for nest in kernel.nests:
        for axes in (nest.axes, *(p.axes for p in nest.phases)):
            yield from (a.name for a in axes)


def _op_refusal(e: Op) -> str | None:
    if e.name in LOGICAL:
        return None
    if e.name == "bitcast":
        source, to = TYPES[e.args[0].dtype], TYPES[e.dtype]
        plain = source.size == to.size and "bool" not in (source.kind, to.kind)
        return None if plain else f"bitcast from {source.name} to {to.name}"
    if e.name in CONVERSIONS:
        return None
    row = ROWS.get(e.name)
    if row is None:
        return f"primitive {e.name}: {REFUSED[e.name]}" if e.name in REFUSED else f"primitive {e.name}"
    if row.text(TYPES[e.args[0].dtype].kind, 1) is None:
        return f"primitive {e.name} on {e.args[0].dtype}"
    return None
