"""What the generator takes, and why it leaves the rest."""

from __future__ import annotations

from collections.abc import Iterable

from opmill_graph_ir.loops.ir import SORTS, Attention, Expr, LoopKernel, Nest, Op, Reduction

from . import walk
from .emit.primitives import CONVERSIONS, REFUSED, ROWS
from .emit.reductions import OPS
from .emit.scans import COMBINE, FLOATS_ONLY
from .emit.sorts import fits
from .emit.types import TYPES

_ATOMIC = {"float32", "float64", "float16", "bfloat16", "int32", "int64"}


def refusal(kernel: LoopKernel) -> str | None:
    """Why the kernel cannot be built; None where it can."""
    for name in (*(b.name for b in kernel.buffers), *kernel.symbols):
        if not name.isidentifier() or not name.isascii():
            return f"name {name!r}"
    for buffer in kernel.buffers:
        if buffer.dtype not in TYPES:
            return f"element type {buffer.dtype}"
    if kernel.attention is not None:
        return _function_refusal(kernel.attention)
    return next((reason for nest in kernel.nests if (reason := _nest_refusal(nest)) is not None), None)


def _function_refusal(found: Attention) -> str | None:
    return _expressions_refusal(e for function in found.functions() for e in walk.inside(function))


def _expressions_refusal(expressions: Iterable[Expr]) -> str | None:
    for e in expressions:
        if e.dtype not in TYPES:
            return f"element type {e.dtype}"
        if type(e) is Op and (reason := _op_refusal(e)) is not None:
            return reason
    return None


def _nest_refusal(nest: Nest) -> str | None:
    for phase in nest.phases:
        if (reason := _expressions_refusal(walk.expressions(phase))) is not None:
            return reason
        for r in phase.reductions:
            if (reason := _reduction_refusal(r)) is not None:
                return reason
        for scan in phase.scans:
            if scan.op in SORTS:
                if not fits(scan.dtype):
                    return f"rows of {scan.dtype} in order"
                continue
            kinds = ("float",) if scan.op in FLOATS_ONLY else ("float", "int", "uint")
            if scan.op not in COMBINE or scan.dtype not in TYPES or TYPES[scan.dtype].kind not in kinds:
                return f"scan {scan.op} in {scan.dtype}"
        for s in phase.stores:
            if s.mode not in ("set", "add"):
                return f"atomic {s.mode}"
            if s.mode == "add" and s.value.dtype not in _ATOMIC:
                return f"atomic addition of {s.value.dtype}"
    return None


def _reduction_refusal(r: Reduction) -> str | None:
    if r.op not in OPS:
        return f"reduction {r.op}"
    if r.dtype not in TYPES or TYPES[r.dtype].kind in ("half", "float8") or (r.op == "welford" and TYPES[r.dtype].kind != "float"):
        return f"reduction {r.op} in {r.dtype}"
    if r.op.startswith("arg") and TYPES[r.dtype].kind == "bool":
        return f"reduction {r.op} in {r.dtype}"
    return None


def _op_refusal(e: Op) -> str | None:
    if e.name == "bitcast":
        source, to = TYPES[e.args[0].dtype], TYPES[e.dtype]
        plain = source.size == to.size and "bool" not in (source.kind, to.kind)
        return None if plain else f"bitcast from {source.name} to {to.name}"
    if e.name in CONVERSIONS:
        return None
    row = ROWS.get(e.name)
    if row is None:
        return f"primitive {e.name}: {REFUSED[e.name]}" if e.name in REFUSED else f"primitive {e.name}"
    if row.text(TYPES[e.args[0].dtype].kind) is None:
        return f"primitive {e.name} on {e.args[0].dtype}"
    return None
