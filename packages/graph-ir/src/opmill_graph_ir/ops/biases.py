"""Products with a bias, where loops alone read them: the bias is added by these, on GPUs and where a packed matrix is multiplied.

With a packed matrix, BLAS adds to what is in memory already, which a pass over it has to put there: 3 to 8% of a product of 128 rows.

On GPUs adding it in loops is nearly free, and cuBLAS has quicker kernels for products without one. Measured on an H200: in half precision
4 to 50% where results are wider than the depth (narrower ones end in norms of rows, which lose by one more operand what the product wins);
in float32 where they are not and there are too few tiles for all multiprocessors, up to 50%, since the depth is split then (swin_t's
inference: 10% in all)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..loops.ir import HALF
from ..lowered import BufferArg, Extern, Scatter, TensorOutput
from ..lowered import Node as LoweredNode
from .context import Context, View
from .exprs import op

_TILE, _MULTIPROCESSORS = 128, 132


def add_biases_apart(ctx: Context, outputs: Sequence[Any], calls: Set[str]) -> None:
    """Rewrites such products in ``ctx.nodes``, but for those among ``calls``."""
    if ctx.exact or not any(type(n) is Extern and n.op == "aten::addmm" for n in ctx.nodes):
        return
    seen = {o.buffer for o in outputs if type(o) is TensorOutput}.union(*map(_read_whole, ctx.nodes))
    nodes, ctx.nodes = ctx.nodes, []
    for node in nodes:
        if type(node) is Extern and node.op == "aten::addmm" and node.source not in calls and _is_apart(ctx, node, seen):
            _rewrite(ctx, node)
        else:
            ctx.nodes.append(node)


def _read_whole(node: LoweredNode) -> set[str]:
    """The buffers that the node reads otherwise than element by element."""
    if type(node) is Scatter and node.base is not None:
        return {node.base}
    return {*_buffers((node.args, *node.kwargs.values())), *node.mutates} if type(node) is Extern else set()


def _buffers(value: object) -> Iterator[str]:
    if type(value) is BufferArg:
        yield value.buffer
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _buffers(item)


def _is_apart(ctx: Context, node: Extern, seen: Set[str]) -> bool:
    bias, first, second = node.args
    [result] = node.results
    if result is None or result in seen or node.kwargs or type(bias) is not BufferArg or bias.sizes is not None:
        return False
    info, addend = ctx.buffers[result], ctx.buffers[bias.buffer]
    if len(addend.sizes) != 1 or addend.sizes[0] != info.sizes[1]:
        return False
    if type(second) is BufferArg and ctx.buffers[second.buffer].multiplied:
        return True
    columns, depth = info.sizes[1].constant, _depth(ctx, first)
    if columns is None or depth is None or not traits_of(info.device).grid:
        return False
    return (
        depth < columns
        if info.dtype in HALF
        else info.dtype == "float32" and depth >= columns and _is_one_wave(info.sizes[0].constant, columns)
    )


def _depth(ctx: Context, first: Any) -> int | None:
    sizes = ctx.buffers[first.buffer].sizes if first.sizes is None else first.sizes
    return sizes[1].constant


def _is_one_wave(rows: int | None, columns: int) -> bool:
    """Whether there is at most a tile of the result for each multiprocessor."""
    return rows is not None and math.ceil(rows / _TILE) * math.ceil(columns / _TILE) <= _MULTIPROCESSORS


def _rewrite(ctx: Context, node: Extern) -> None:
    [result] = node.results
    assert result is not None and type(node.args[0]) is BufferArg
    ctx.origin, ctx.source, before = node.origin, node.source, len(ctx.nodes)
    meta, bias = ctx.metas[result], View(node.args[0].buffer, ctx.buffers[node.args[0].buffer].dtype, ctx.metas[result].sizes[1:])
    product = ctx.buffer(ctx.fresh(), meta)
    ctx.fixed.add(product.buffer)
    ctx.nodes.append(Extern("aten::mm", node.args[1:], {}, (product.buffer,), "aten::mm.out", (), node.origin))
    ctx.pointwise(result, meta, lambda at, ext: op("add", ctx.load(product, at, ext), ctx.load(bias, at[1:], ext)))
    ctx.mark(before)


__all__ = ["add_biases_apart"]
