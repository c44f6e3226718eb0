"""Losses that pick an element by its class."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..capture.graph import Meta, Node
from ..loops.index import Index, index
from ..loops.ir import Check, Expr, Let, Reduction, Ref
from ..lowered import Pointwise
from .context import Context, View, extents_of, named_axes, positions
from .exprs import FLOATS, cast, const, op, wide
from .records import Rows

ROWS = Rows()


@ROWS.lowers("nll_loss_forward nll_loss2d_forward")
def _nll_loss(ctx: Context, node: Node, x: View, target: View, weight: Any, reduction: int, ignored: int) -> Any:
    """``-x[n, target[n]]``, weighted by class, zero where the target is ``ignored``; the mean is over the weights."""
    dim = min(len(x.sizes) - 1, 1)
    kept = (*x.sizes[:dim], *x.sizes[dim + 1 :])
    if x.dtype not in FLOATS or target.dtype != "int64" or 0 in x.sizes or target.sizes != kept:
        return NotImplemented
    dtype, results = wide(x.dtype), [(r, ctx.metas[r or ""]) for r in node.results]
    picked, weights = _picked(ctx, x, target, weight, dim, ignored)
    if reduction == 0:
        losses = ctx.pointwise(*results[0], lambda at, ext: ctx.load(picked, at, ext))
        return [losses, ctx.pointwise(*results[1], lambda at, ext: const(0, dtype))]
    scalar = Meta(dtype, (), (), ctx.buffers[x.buffer].device)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        pairs = (("a", picked), ("b", weights))
        return [Reduction((n,), "sum", ctx.load(v, inner, ext), dtype) for n, v in pairs], [Ref("a", dtype), Ref("b", dtype)]

    if not kept:
        total, mass = picked, weights
    else:
        total, mass = ctx.reduce([(None, scalar)] * 2, kept, make)

    def value(at: Any, ext: Any) -> Expr:
        return op("div", ctx.load(total, (), ext), ctx.load(mass, (), ext)) if reduction == 1 else ctx.load(total, (), ext)

    return [ctx.pointwise(*results[0], value), ctx.pointwise(*results[1], lambda at, ext: ctx.load(mass, (), ext))]


def _picked(ctx: Context, x: View, target: View, weight: Any, dim: int, ignored: int) -> tuple[View, View]:
    """The loss and the weight of each target."""
    dtype, classes = wide(x.dtype), x.sizes[dim]
    strides = tuple(math.prod(target.sizes[k + 1 :]) for k in range(len(target.sizes)))
    meta = Meta(dtype, target.sizes, strides, ctx.buffers[x.buffer].device)
    axes = named_axes("i", target.sizes)
    at, ext = positions(axes), extents_of(axes)
    raw = ctx.read(target, at, ext)
    if weight is None:
        weights = ctx.pointwise(None, meta, lambda at, ext: cast(op("ne", ctx.read(target, at, ext), const(ignored, "int64")), dtype))
    else:
        weights = _by_class(ctx, meta, raw, classes, ignored, lambda g: cast(ctx.load(weight, (g,), ext), dtype))

    def loss(g: Index) -> Expr:
        value = op("neg", cast(ctx.load(x, (*at[:dim], g, *at[dim:]), ext), dtype))
        return value if weight is None else op("mul", value, cast(ctx.load(weight, (g,), ext), dtype))

    return _by_class(ctx, meta, raw, classes, ignored, loss), weights


def _by_class(ctx: Context, meta: Meta, target: Expr, classes: int, ignored: int, value: Callable[[Index], Expr]) -> View:
    """``value`` of the class at each position of ``target``, an expression over the axes ``i0, i1, ...``; zero where it is ``ignored``."""
    raw = Ref("g_raw", "int64")
    counts = op("ne", raw, const(ignored, "int64"))
    inside = op("logical_and", op("ge", raw, const(0, "int64")), op("lt", raw, const(classes, "int64")))
    lets = [Let("g_raw", target), Let("g", op("where", counts, raw, const(0, "int64")))]
    check = Check(op("logical_or", op("logical_not", counts), inside), "IndexError", "Target is out of bounds.")
    view = ctx.buffer(ctx.fresh(), meta)
    body = op("where", counts, value(index("g")), const(0, meta.dtype))
    ctx.nodes.append(Pointwise(view.buffer, named_axes("i", meta.sizes), body, tuple(lets), (check,), ctx.origin))
    return view
