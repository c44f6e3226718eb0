"""Attention of one query a head, as it is when tokens are generated one by one: a matter of reading keys and values once.

Scores, their softmax and the weighted sum of values are loops. They read a cache as it lies, also where the program repeats each of its
heads for several of the query's, which libraries want copied out; and the query is computed on the way. One H200, bfloat16, 32 heads over
8 of a cache of 256 positions: 6 us a layer, as an operator of torch's 11, copies included.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Meta, Node
from ..dense import contiguous
from ..loops.index import ZERO, floordiv
from ..loops.ir import Reduction, Ref
from .context import Context, View
from .exprs import FLOATS, const, op
from .reductions import softmax
from .split_query import split_query

_WIDE = "float32"


def one_query(
    ctx: Context, node: Node, query: View, key: View, value: View, bias: View | None, *, dropout: float, causal: bool, scale: float | None
) -> Any:
    """What the operator gives; NotImplemented for more than one query, on devices without a grid, and where others than its first result
    are read."""
    if not _takes(ctx, node, query, key, value, dropout=dropout, causal=causal):
        return NotImplemented
    split = split_query(ctx, node, query, key, value, bias, scale)
    return _attend(ctx, node, query, key, value, bias, scale) if split is None else split


def _takes(ctx: Context, node: Node, query: View, key: View, value: View, *, dropout: float, causal: bool) -> bool:
    if ctx.exact or dropout or causal or any(r in ctx.used for r in node.results[1:]) or not node.results[0]:
        return False
    fixed = [n for v in (query, key, value) for n in (*v.sizes[:2], v.sizes[3])]
    if any(type(n) is not int or n == 0 for n in fixed) or query.sizes[2] != 1 or 0 in key.sizes:
        return False
    (rows, heads, _, _), (key_rows, key_heads, length, _) = query.sizes, key.sizes
    alike = value.sizes[:3] == key.sizes[:3] and key_rows == rows and heads % key_heads == 0 and query.sizes[3] == key.sizes[3]
    typed = query.dtype == key.dtype == value.dtype and query.dtype in FLOATS and query.dtype != "float64"
    return alike and typed and type(length) is int and traits_of(ctx.buffers[query.buffer].device).grid


def _attend(ctx: Context, node: Node, query: View, key: View, value: View, bias: View | None, scale: float | None) -> list[View | None]:
    """``query``: [rows, heads, 1, depth]; ``key``, ``value``: [rows, heads or fewer, length, depth]; ``bias`` broadcasts to
    [rows, heads, 1, length]. Rows that the bias masks whole are zero, as in torch's fused kernels."""
    rows, heads, _, depth = query.sizes
    shared = heads // key.sizes[1]
    factor = 1 / math.sqrt(depth) if scale is None else scale
    sizes = (rows, heads, 1, key.sizes[2])
    scores_meta = Meta(_WIDE, sizes, contiguous(sizes), ctx.buffers[query.buffer].device)

    def score(at: Any, inner: Any, ext: Any) -> Any:
        row, head, _, position = at
        product = op(
            "mul", ctx.load(query, (row, head, ZERO, *inner), ext), ctx.load(key, (row, floordiv(head, shared), position, *inner), ext)
        )
        total = op("mul", Ref("total", _WIDE), const(factor, _WIDE))
        return [Reduction(("total",), "sum", product, _WIDE)], [
            total if bias is None else op("add", total, ctx.load_broadcast(bias, at, ext))
        ]

    [scores] = ctx.reduce([(None, scores_meta)], [depth], score)
    weights = softmax(ctx, None, scores_meta, scores, 3, safe=True)

    def mixed(at: Any, inner: Any, ext: Any) -> Any:
        row, head, _, column = at
        product = op(
            "mul", ctx.load(weights, (row, head, ZERO, *inner), ext), ctx.load(value, (row, floordiv(head, shared), *inner, column), ext)
        )
        return [Reduction(("mix",), "sum", product, _WIDE)], [Ref("mix", _WIDE)]

    result = node.results[0] or ""
    meta = replace(ctx.metas[result], dtype=query.dtype)
    [view] = ctx.reduce([(result, meta)], [key.sizes[2]], mixed)
    return [view, *(None,) * (len(node.results) - 1)]


__all__ = ["one_query"]
