"""Short rows in order, and the first of them, as scans of the loop IR: on GPUs, where a program holds whole rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Node
from ..loops.ir import LONGEST_SORT, SORTS, Ref, Scan
from ..lowered import Cumulate, Extern, Pointwise, Scatter
from ..lowered import Node as LoweredNode
from .context import Context, View
from .exprs import cast, known_order
from .records import Rows
from .views import on_vectors

ROWS = Rows()
_TYPES = frozenset("float32 float16 bfloat16 int32 int16 int8 uint8 bool".split())
"""Element types that fit into a word of 64 bits together with a position."""
_FEW, _NARROW, _WIDE = 1024, 1024, 512
"""Rows beyond which length counts, and how long rows may be then: those of words of 32 and of 64 bits (half precision and less, and
others). On an H200 rows half as long are put in order two to five times as fast as by torch's operators, and rows twice as long half as
fast."""


@ROWS.lowers("sort sort.stable", chooses=True)
@on_vectors
def _sort(ctx: Context, node: Node, x: View, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    """Stable whether that is asked for or not."""
    return _in_order(ctx, node, x, dim, descending)


@ROWS.lowers("topk", chooses=True)
@on_vectors
def _topk(ctx: Context, node: Node, x: View, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """In order whether that is asked for or not; of equals the first ones. Of truths it is an error in eager."""
    return _in_order(ctx, node, x, dim, largest) if type(k) is int and x.dtype != "bool" else NotImplemented


def _in_order(ctx: Context, node: Node, x: View, dim: int, descending: bool) -> Any:
    n, meta = x.sizes[dim], ctx.metas[next(r for r in node.results if r is not None)]
    outputs = [(name, replace(meta, dtype=dtype)) for name, dtype in zip(node.results, (x.dtype, "int64"), strict=True)]
    if not traits_of(meta.device).grid or 0 in meta.sizes or type(n) is not int or not 0 < n <= LONGEST_SORT:
        return NotImplemented
    dtype = "int16" if x.dtype == "int64" and _holds_positions(ctx, x.buffer) else x.dtype
    if dtype not in _TYPES or (
        n > (_WIDE if dtype in ("float32", "int32") else _NARROW) and known_order(math.prod(x.sizes), _FEW * n) is not True
    ):
        return NotImplemented

    def make(at: Any, ext: Any) -> Any:
        scan = Scan(("a", "b"), "descending" if descending else "ascending", (cast(ctx.read(x, at, ext), dtype),), dtype)
        return [scan], [Ref("a", dtype), Ref("b", "int64")]

    return ctx.cumulate(outputs, dim % len(x.sizes), make, n)


def _holds_positions(ctx: Context, buffer: str) -> bool:
    """Whether all that is ever written to a buffer are positions in rows that were put in order, as ``x.argsort()`` gives them: their order
    are ranks."""
    writers = [n for n in ctx.nodes if buffer in _written(n)]
    if len(writers) != 1 or type(writers[0]) is not Cumulate:
        return False
    value = writers[0].values[writers[0].buffers.index(buffer)]
    return any(s.op in SORTS and value == Ref(s.names[1], "int64") for s in writers[0].scans)


def _written(node: LoweredNode) -> tuple[str | None, ...]:
    if isinstance(node, Extern):
        return (*node.results, *node.mutates)
    return (node.buffer,) if isinstance(node, (Pointwise, Scatter)) else node.buffers


__all__ = ["ROWS"]
