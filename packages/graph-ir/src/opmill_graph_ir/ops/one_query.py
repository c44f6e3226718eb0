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
from ..loops.index import ZERO, floordiv
from ..loops.ir import Expr, Reduction, Ref
from .context import Context, View, contiguous
from .exprs import FLOATS, const, op

_WIDE = "float32"


def takes(ctx: Context, node: Node, query: View, key: View, value: View, *, dropout: float, causal: bool) -> bool:
    """Whether it is done here: one query, on a device with a grid, whose results but the first nobody reads."""
    if ctx.exact or dropout or causal or any(r in ctx.used for r in node.results[1:]) or not node.results[0]:
        return False
    fixed = [n for v in (query, key, value) for n in (*v.sizes[:2], v.sizes[3])]
    if any(type(n) is not int or n == 0 for n in fixed) or query.sizes[2] != 1 or 0 in key.sizes:
        return False
    (rows, heads, _, _), (key_rows, key_heads, length, _) = query.sizes, key.sizes
    alike = value.sizes[:3] == key.sizes[:3] and key_rows == rows and heads % key_heads == 0 and query.sizes[3] == key.sizes[3]
    typed = query.dtype == key.dtype == value.dtype and query.dtype in FLOATS and query.dtype != "float64"
    return alike and typed and type(length) is int and traits_of(ctx.buffers[query.buffer].device).grid


def attend(ctx: Context, node: Node, query: View, key: View, value: View, bias: View | None, scale: float | None) -> list[View | None]:
    """``query``: [rows, heads, 1, depth]; ``key``, ``value``: [rows, heads or fewer, length, depth]; ``bias`` broadcasts to
    [rows, heads, 1, length]. Rows that the bias masks whole are zero, as in torch's fused kernels."""
    rows, heads, _, depth = query.sizes
    shared = heads // key.sizes[1]
    factor = 1 / math.sqrt(depth) if scale is None else scale
    device = ctx.buffers[query.buffer].device

    def table(*last: int) -> Meta:
        sizes = (rows, heads, 1, *last)
        return Meta(_WIDE, sizes, contiguous(sizes), device)

    def score(at: Any, inner: Any, ext: Any) -> Any:
        row, head, _, position = at
        product = op(
            "mul", ctx.load(query, (row, head, ZERO, *inner), ext), ctx.load(key, (row, floordiv(head, shared), position, *inner), ext)
        )
        total = op("mul", Ref("total", _WIDE), const(factor, _WIDE))
        return [Reduction(("total",), "sum", product, _WIDE)], [
            total if bias is None else op("add", total, ctx.load_broadcast(bias, at, ext))
        ]

    [scores] = ctx.reduce([(None, table(key.sizes[2]))], [depth], score)

    def along(kind: str, of: Any) -> View:
        def make(at: Any, inner: Any, ext: Any) -> Any:
            return [Reduction(("a",), kind, of((*at[:3], *inner), ext), _WIDE)], [Ref("a", _WIDE)]

        return ctx.reduce([(None, table(1))], [key.sizes[2]], make)[0]

    top = along("max", lambda at, ext: ctx.load(scores, at, ext))

    def power(at: Any, ext: Any) -> Expr:
        return op("exp", op("sub", ctx.load(scores, at, ext), ctx.load_broadcast(top, at, ext)))

    total = along("sum", power)

    def weight(at: Any, ext: Any) -> Expr:
        masked = op("eq", ctx.load_broadcast(top, at, ext), const(-math.inf, _WIDE))
        return op("where", masked, const(0, _WIDE), op("div", power(at, ext), ctx.load_broadcast(total, at, ext)))

    weights = ctx.pointwise(None, table(key.sizes[2]), weight)

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


__all__ = ["attend", "takes"]
