"""Operators that only backward graphs have: of losses and dropout, and those that put gradients back where they were taken from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Meta, Node
from ..dense import contiguous
from ..loops.index import Index, floordiv, index, mod
from ..loops.ir import Const, Expr
from .context import FEW, Context, View, view_axes
from .creation import masked
from .exprs import FLOATS, all_of, cast, const, index_value, known_order, op, wide
from .pointwise import of_floats
from .records import Rows
from .views import slice_bounds

ROWS = Rows()
_MOST_CLASSES = 2**31 - 1


def _c(x: Expr, value: float) -> Const:
    return const(value, x.dtype)


@ROWS.pointwise("native_dropout_backward")
def _dropout(ctx: Context, node: Node, grad: View, mask: View, scale: float) -> Any:
    return of_floats(ctx, node, [grad, mask], lambda g, m: op("mul", op("mul", g, m), _c(g, scale)))


# ---- losses ----------------------------------------------------------------------------------------------------------------


@ROWS.pointwise("mse_loss_backward")
def _mse_loss(ctx: Context, node: Node, grad: View, x: View, target: View, reduction: int) -> Any:
    norm = 2.0 / max(math.prod(x.sizes), 1) if reduction == 1 else 2.0
    return of_floats(ctx, node, [grad, x, target], lambda g, x, t: op("mul", op("mul", _c(x, norm), op("sub", x, t)), g))


@ROWS.lowers("nll_loss_backward nll_loss2d_backward")
def _nll_loss(ctx: Context, node: Node, grad: View, x: View, target: View, weight: Any, reduction: int, ignored: int, total: View) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    dim = min(len(x.sizes) - 1, 1)
    if meta.dtype not in FLOATS or target.dtype != "int64" or 0 in x.sizes:
        return NotImplemented
    lies = x.indices is None and ctx.buffers[x.buffer].strides == tuple(map(index, contiguous(x.sizes)))  # as torch's operator asks for
    if dim != len(x.sizes) - 1 and lies and node.results[0] in ctx.leaving and ctx.on_processor(x, FEW):
        return NotImplemented  # zeros but for one class: where nothing is computed of them, torch's operator writes that alone
    dtype = wide(meta.dtype)
    if weight is None and target.sizes == (*x.sizes[:dim], *x.sizes[dim + 1 :]):
        return _one_a_row(ctx, node, grad, target, dim, reduction, ignored, total)

    def value(at: Any, ext: Any) -> Expr:
        where = (*at[:dim], *at[dim + 1 :])[: len(target.sizes)]
        label = ctx.load(target, where, ext)
        g = op("neg", cast(ctx.load(grad, where if reduction == 0 else (), ext), dtype))
        if weight is not None:
            g = op("mul", g, cast(ctx.load(weight, (at[dim],), ext), dtype))
        if reduction == 1:
            g = op("div", g, cast(ctx.load(total, (), ext), dtype))
        mine = op("logical_and", _is_class(ctx, label, at[dim], meta, dim), op("ne", label, const(ignored, "int64")))
        return op("where", mine, g, const(0, dtype))

    return ctx.pointwise(node.results[0], meta, value)


def _is_class(ctx: Context, label: Expr, place: Index, meta: Meta, dim: int) -> Expr:
    """Whether a label names the class. On processors numbers of 32 bits are compared: vectors of them have twice the lanes."""
    classes = meta.sizes[dim]
    if type(classes) is not int or classes > _MOST_CLASSES or not traits_of(meta.device).processor:
        return op("eq", label, index_value(place))
    inside = op("logical_and", op("ge", label, const(0, "int64")), op("lt", label, const(classes, "int64")))
    return op("eq", cast(op("where", inside, label, const(-1, "int64")), "int32"), index_value(place, "int32"))


def _one_a_row(ctx: Context, node: Node, grad: View, target: View, dim: int, reduction: int, ignored: int, total: View) -> View:
    """Without weights all rows but for one element are zero, and that element is the sum of its row: the backward of a softmax, which asks
    for that sum, need not go through all classes for it."""
    meta = ctx.metas[node.results[0] or ""]
    dtype = wide(meta.dtype)

    def element(at: Any, ext: Any) -> Expr:
        g = op("neg", cast(ctx.load(grad, at if reduction == 0 else (), ext), dtype))
        if reduction == 1:
            g = op("div", g, cast(ctx.load(total, (), ext), dtype))
        return op("where", op("ne", ctx.load(target, at, ext), const(ignored, "int64")), g, const(0, dtype))

    elements = ctx.pointwise(None, Meta(dtype, target.sizes, contiguous(target.sizes), meta.device), element)

    def value(at: Any, ext: Any) -> Expr:
        where = (*at[:dim], *at[dim + 1 :])
        mine = _is_class(ctx, ctx.load(target, where, ext), at[dim], meta, dim)
        return op("where", mine, ctx.load(elements, where, ext), const(0, dtype))

    out = ctx.pointwise(node.results[0], meta, value)
    sizes = (*meta.sizes[:dim], 1, *meta.sizes[dim + 1 :])
    names, _ = view_axes(sizes)
    ctx.sums[out.buffer, dim] = View(elements.buffer, dtype, sizes, (*names[:dim], *names[dim + 1 :]))
    return out


# ---- what was taken out of a tensor ----------------------------------------------------------------------------------------


@ROWS.lowers("slice_backward", complex="each part")
def _slice(ctx: Context, node: Node, grad: View, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if 0 in grad.sizes or 0 in meta.sizes:
        return NotImplemented
    dim %= len(sizes)
    first, last = slice_bounds(ctx, sizes[dim], start, end)

    def value(at: Any, ext: Any) -> Expr:
        a = at[dim]
        inside = [op("ge", index_value(a), const(first, "int64"))] if first else []
        if not known_order(sizes[dim], last):
            inside.append(op("lt", index_value(a), const(last, "int64")))
        if step != 1:
            inside.append(op("eq", index_value(mod(a - first, step, ext)), const(0, "int64")))
        there = (*at[:dim], floordiv(a - first, step, ext), *at[dim + 1 :])
        return _or_zero(ctx, grad, there, inside, ext)

    return ctx.pointwise(node.results[0], meta, value)


@ROWS.lowers("diagonal_backward", complex="each part")
def _diagonal(ctx: Context, node: Node, grad: View, sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if 0 in grad.sizes or 0 in meta.sizes:
        return NotImplemented
    dim1, dim2 = dim1 % len(sizes), dim2 % len(sizes)

    def value(at: Any, ext: Any) -> Expr:
        rest = [p for d, p in enumerate(at) if d not in (dim1, dim2)]
        along = at[dim1] if offset >= 0 else at[dim2]
        inside = [
            op("eq", index_value(at[dim1] + offset), index_value(at[dim2])),
            op("lt", index_value(along), const(grad.sizes[-1], "int64")),
        ]
        return _or_zero(ctx, grad, (*rest, along), inside, ext)

    return ctx.pointwise(node.results[0], meta, value)


@ROWS.lowers("select_backward", complex="each part")
def _select(ctx: Context, node: Node, grad: View, sizes: Sequence[int], dim: int, position: int) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if 0 in meta.sizes:
        return NotImplemented
    dim %= len(sizes)
    position %= sizes[dim]

    def value(at: Any, ext: Any) -> Expr:
        inside = [op("eq", index_value(at[dim]), const(position, "int64"))] if sizes[dim] > 1 else []
        return _or_zero(ctx, grad, (*at[:dim], *at[dim + 1 :]), inside, ext)

    return ctx.pointwise(node.results[0], meta, value)


def _or_zero(ctx: Context, grad: View, there: Sequence[Any], inside: Sequence[Expr], ext: Any) -> Expr:
    return masked(ctx.read(grad, there, ext), all_of(inside), const(0, grad.dtype))
