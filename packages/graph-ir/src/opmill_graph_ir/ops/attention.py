"""Which of torch's kernels for attention runs."""

from __future__ import annotations

import math
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of
from opmill_runtime_cache.plan.model import Literal

from ..capture.graph import Node
from ..lowered import Extern
from .arguments import plan_argument
from .context import Context, View
from .exprs import LOW
from .half_products import in_float, is_slow
from .one_query import one_query
from .records import Rows

ROWS = Rows()
_SHORT = 256
_NARROW = 64
"""Lengths and head dimensions up to which FlashAttention's kernel takes no longer on the device than cuDNN's (one H200: b8 h12 s128 d64 5.5
us against 6.0, b32 h3 s197 d64 11.3 against 11.2; s512 28.5 against 20.4). Its operator takes half the time on the host, and its one kernel
can be started alone."""


@ROWS.lowers("_scaled_dot_product_cudnn_attention")
def _cudnn(
    ctx: Context,
    node: Node,
    query: View,
    key: View,
    value: View,
    bias: Any = None,
    sums: bool = False,
    dropout: float = 0.0,
    causal: bool = False,
    mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    attended = one_query(ctx, node, query, key, value, bias, dropout=dropout, causal=causal, scale=scale)
    if attended is not NotImplemented:
        return attended
    if (
        ctx.exact
        or bias is not None
        or sums
        or dropout
        or mask
        or not torch.backends.cuda.flash_sdp_enabled()
        or any(r in ctx.used for r in node.results[1:])
    ):
        return NotImplemented
    sizes = [v.sizes for v in (query, key, value)]
    if any(type(n) is not int or n == 0 for of in sizes for n in of) or sizes[1] != sizes[2] or sizes[0][:2] != sizes[1][:2]:
        return NotImplemented
    _, heads, length, depth = sizes[0]
    if (
        length > _SHORT
        or sizes[1][2] > _SHORT
        or depth > _NARROW
        or depth % 8
        or sizes[1][3] != depth
        or (causal and length != sizes[1][2])
    ):
        return NotImplemented
    result = node.results[0]
    meta = ctx.metas[result or ""]
    if result is None or tuple(meta.strides) != (length * heads * depth, depth, heads * depth, 1):  # as that kernel lays it out
        return NotImplemented
    args = (*(plan_argument(ctx, a) for a in node.args[:3]), Literal(0.0), Literal(causal), Literal(False))
    view = ctx.buffer(result, meta)
    ctx.fixed.add(result)
    names = (result, *(None,) * 8)
    ctx.nodes.append(
        Extern("aten::_scaled_dot_product_flash_attention", args, {"scale": plan_argument(ctx, scale)}, names, None, (), ctx.origin)
    )
    return [view, *(None,) * (len(node.results) - 1)]


@ROWS.lowers("_scaled_dot_product_efficient_attention")
def _efficient(
    ctx: Context,
    node: Node,
    query: View,
    key: View,
    value: View,
    bias: Any,
    sums: bool,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    return one_query(ctx, node, query, key, value, bias, dropout=dropout, causal=causal, scale=scale)


@ROWS.lowers("_scaled_dot_product_flash_attention")
def _flash(
    ctx: Context,
    node: Node,
    query: View,
    key: View,
    value: View,
    dropout: float = 0.0,
    causal: bool = False,
    mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    return one_query(ctx, node, query, key, value, None, dropout=dropout, causal=causal, scale=scale)


@ROWS.lowers("_scaled_dot_product_flash_attention_for_cpu")
def _on_cpu(ctx: Context, node: Node, query: View, *_: Any, **__: Any) -> Any:
    return in_float(ctx, node) if is_slow(ctx, query) and 0 not in query.sizes else NotImplemented


@ROWS.lowers("_scaled_dot_product_flash_attention_for_cpu_backward")
def _on_cpu_backward(ctx: Context, node: Node, gradient: View, query: View, key: View, *_: Any, **__: Any) -> Any:
    if 0 in gradient.sizes or not (is_slow(ctx, gradient) or _is_short(ctx, query, key)):
        return NotImplemented
    return in_float(ctx, node)


_LITTLE = 256 * 256 * 64
"""Queries times keys times depth up to which the gradient of attention in half precision takes longer than in float32, conversions
included, also on a processor that multiplies halves: that kernel spends some 60 us a head before it begins. With AMX: 8 x 8 heads of
16 x 32 take 4.0 ms against 0.3, 4 x 8 of 128 x 32 9.6 against 3.0, 2 x 4 of 256 x 64 3.4 against 2.8, of 384 x 64 5.7 against 5.7, 16 of
512 x 64 21 against 28."""


def _is_short(ctx: Context, query: View, key: View) -> bool:
    if query.dtype not in LOW or ctx.exact or not traits_of(ctx.buffers[query.buffer].device).processor:
        return False
    lengths = (query.sizes[2], key.sizes[2], query.sizes[3])
    return all(type(n) is int for n in lengths) and math.prod(lengths) <= _LITTLE
