"""Pointwise operators that only backward graphs have, and those that put gradients back where they were taken from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..capture.graph import Node
from ..loops.index import floordiv, mod
from ..loops.ir import Const, Expr
from .context import Context, View
from .creation import masked
from .exprs import FLOATS, all_of, cast, const, index_value, known_order, op, wide
from .rows import Rows
from .views import slice_bounds

ROWS = Rows()


def _c(x: Expr, value: float) -> Const:
    return const(value, x.dtype)


def _pointwise(ctx: Context, node: Node, tensors: Sequence[View], fn: Callable[..., Expr]) -> Any:
    """``fn`` of the elements of ``tensors``, all computed in the type of the result."""
    meta = ctx.metas[node.results[0] or ""]
    dtype = wide(meta.dtype)
    if dtype not in FLOATS:
        return NotImplemented
    return ctx.pointwise(node.results[0], meta, lambda at, ext: fn(*(cast(ctx.load_broadcast(t, at, ext), dtype) for t in tensors)))


def _declare(name: str, fn: Callable[[Expr, Expr], Expr]) -> None:
    """A row for ``name(grad, tensor)``."""
    ROWS.lowers(name)(lambda ctx, node, grad, x: _pointwise(ctx, node, [grad, x], fn))


# ---- activations -----------------------------------------------------------------------------------------------------------


def _silu(g: Expr, x: Expr) -> Expr:
    s = op("sigmoid", x)
    return op("mul", g, op("mul", s, op("add", _c(x, 1), op("mul", x, op("sub", _c(x, 1), s)))))


def _hardswish(g: Expr, x: Expr) -> Expr:
    inner = op("mul", g, op("add", op("div", x, _c(x, 3)), _c(x, 0.5)))
    return op("where", op("ge", x, _c(x, 3)), g, op("where", op("le", x, _c(x, -3)), _c(x, 0), inner))


def _hardsigmoid(g: Expr, x: Expr) -> Expr:
    inside = op("logical_and", op("gt", x, _c(x, -3)), op("lt", x, _c(x, 3)))
    return op("where", inside, op("mul", g, _c(x, 1 / 6)), _c(x, 0))


_declare("silu_backward", _silu)
_declare("hardswish_backward", _hardswish)
_declare("hardsigmoid_backward", _hardsigmoid)
_declare("sigmoid_backward", lambda g, y: op("mul", op("mul", g, op("sub", _c(y, 1), y)), y))
_declare("tanh_backward", lambda g, y: op("mul", g, op("sub", _c(y, 1), op("mul", y, y))))


def _gelu_tanh(g: Expr, x: Expr) -> Expr:
    beta, kappa = math.sqrt(2 / math.pi), 0.044715
    square = op("mul", x, x)
    inner = op("mul", _c(x, beta), op("add", x, op("mul", _c(x, kappa), op("mul", square, x))))
    t = op("tanh", inner)
    slope = op("mul", _c(x, beta), op("add", _c(x, 1), op("mul", _c(x, 3 * kappa), square)))
    left = op("mul", _c(x, 0.5), op("add", _c(x, 1), t))
    right = op("mul", op("mul", op("mul", _c(x, 0.5), x), op("sub", _c(x, 1), op("mul", t, t))), slope)
    return op("mul", g, op("add", left, right))


def _gelu_erf(g: Expr, x: Expr) -> Expr:
    cdf = op("mul", _c(x, 0.5), op("add", _c(x, 1), op("erf", op("mul", x, _c(x, math.sqrt(0.5))))))
    density = op("mul", _c(x, 1 / math.sqrt(2 * math.pi)), op("exp", op("mul", op("mul", x, x), _c(x, -0.5))))
    return op("mul", g, op("add", cdf, op("mul", x, density)))


@ROWS.lowers("gelu_backward")
def _gelu(ctx: Context, node: Node, grad: View, x: View, *, approximate: str = "none") -> Any:
    return _pointwise(ctx, node, [grad, x], _gelu_tanh if approximate == "tanh" else _gelu_erf)


@ROWS.lowers("threshold_backward")
def _threshold(ctx: Context, node: Node, grad: View, x: View, limit: float) -> Any:
    return _pointwise(ctx, node, [grad, x], lambda g, x: op("where", op("le", x, _c(x, limit)), _c(x, 0), g))


@ROWS.lowers("hardtanh_backward")
def _hardtanh(ctx: Context, node: Node, grad: View, x: View, low: float, high: float) -> Any:
    def value(g: Expr, x: Expr) -> Expr:
        return op("where", op("logical_and", op("gt", x, _c(x, low)), op("lt", x, _c(x, high))), g, _c(x, 0))

    return _pointwise(ctx, node, [grad, x], value)


@ROWS.lowers("leaky_relu_backward")
def _leaky_relu(ctx: Context, node: Node, grad: View, x: View, slope: float, of_result: bool) -> Any:
    return _pointwise(ctx, node, [grad, x], lambda g, x: op("where", op("gt", x, _c(x, 0)), g, op("mul", g, _c(x, slope))))


@ROWS.lowers("elu_backward")
def _elu(ctx: Context, node: Node, grad: View, alpha: float, scale: float, input_scale: float, of_result: bool, x: View) -> Any:
    def value(g: Expr, x: Expr) -> Expr:
        if of_result:
            negative = op("mul", _c(x, input_scale), op("add", x, _c(x, alpha * scale)))
        else:
            negative = op("mul", _c(x, input_scale * alpha * scale), op("exp", op("mul", x, _c(x, input_scale))))
        return op("where", op("gt", x, _c(x, 0)), op("mul", g, _c(x, scale)), op("mul", g, negative))

    return _pointwise(ctx, node, [grad, x], value)


@ROWS.lowers("softplus_backward")
def _softplus(ctx: Context, node: Node, grad: View, x: View, beta: float, threshold: float) -> Any:
    def value(g: Expr, x: Expr) -> Expr:
        z = op("exp", op("mul", x, _c(x, beta)))
        slope = op("div", op("mul", g, z), op("add", z, _c(x, 1)))
        return op("where", op("gt", op("mul", x, _c(x, beta)), _c(x, threshold)), g, slope)

    return _pointwise(ctx, node, [grad, x], value)


@ROWS.lowers("hardshrink_backward softshrink_backward")
def _shrink(ctx: Context, node: Node, grad: View, x: View, limit: float) -> Any:
    def value(g: Expr, x: Expr) -> Expr:
        outside = op("logical_or", op("lt", x, _c(x, -limit)), op("gt", x, _c(x, limit)))
        return op("where", outside, g, _c(x, 0))

    return _pointwise(ctx, node, [grad, x], value)


@ROWS.lowers("mish_backward")
def _mish(ctx: Context, node: Node, grad: View, x: View) -> Any:
    def value(g: Expr, x: Expr) -> Expr:
        t = op("tanh", op("log1p", op("exp", x)))
        slope = op("mul", op("mul", x, op("sigmoid", x)), op("sub", _c(x, 1), op("mul", t, t)))
        return op("mul", g, op("add", t, slope))

    return _pointwise(ctx, node, [grad, x], value)


@ROWS.lowers("logit_backward")
def _logit(ctx: Context, node: Node, grad: View, x: View, eps: float | None = None) -> Any:
    def value(g: Expr, x: Expr) -> Expr:
        low, high, outside = (0.0, 1.0, math.nan) if eps is None else (eps, 1 - eps, 0.0)
        inside = op("logical_and", op("ge", x, _c(x, low)), op("le", x, _c(x, high)))
        return op("where", inside, op("div", g, op("mul", x, op("sub", _c(x, 1), x))), _c(x, outside))

    return _pointwise(ctx, node, [grad, x], value)


@ROWS.lowers("_prelu_kernel_backward")
def _prelu(ctx: Context, node: Node, grad: View, x: View, weight: View) -> Any:
    first, second = (ctx.metas[r or ""] for r in node.results)
    dtype = wide(first.dtype)
    if dtype not in FLOATS:
        return NotImplemented

    def parts(at: Any, ext: Any) -> tuple[Expr, Expr, Expr]:
        g, a, w = (cast(ctx.load_broadcast(v, at, ext), dtype) for v in (grad, x, weight))
        return g, a, w

    def of_input(at: Any, ext: Any) -> Expr:
        g, a, w = parts(at, ext)
        return op("where", op("gt", a, _c(a, 0)), g, op("mul", w, g))

    def of_weight(at: Any, ext: Any) -> Expr:
        g, a, _ = parts(at, ext)
        return op("where", op("gt", a, _c(a, 0)), _c(a, 0), op("mul", a, g))

    return [ctx.pointwise(node.results[0], first, of_input), ctx.pointwise(node.results[1], second, of_weight)]


@ROWS.lowers("native_dropout_backward")
def _dropout(ctx: Context, node: Node, grad: View, mask: View, scale: float) -> Any:
    return _pointwise(ctx, node, [grad, mask], lambda g, m: op("mul", op("mul", g, m), _c(g, scale)))


# ---- losses ----------------------------------------------------------------------------------------------------------------


@ROWS.lowers("mse_loss_backward")
def _mse_loss(ctx: Context, node: Node, grad: View, x: View, target: View, reduction: int) -> Any:
    norm = 2.0 / max(math.prod(x.sizes), 1) if reduction == 1 else 2.0
    return _pointwise(ctx, node, [grad, x, target], lambda g, x, t: op("mul", op("mul", _c(x, norm), op("sub", x, t)), g))


@ROWS.lowers("nll_loss_backward nll_loss2d_backward")
def _nll_loss(ctx: Context, node: Node, grad: View, x: View, target: View, weight: Any, reduction: int, ignored: int, total: View) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    dim = min(len(x.sizes) - 1, 1)
    if meta.dtype not in FLOATS or target.dtype != "int64" or 0 in x.sizes:
        return NotImplemented
    dtype = wide(meta.dtype)

    def value(at: Any, ext: Any) -> Expr:
        where = (*at[:dim], *at[dim + 1 :])[: len(target.sizes)]
        label = ctx.load(target, where, ext)
        g = op("neg", cast(ctx.load(grad, where if reduction == 0 else (), ext), dtype))
        if weight is not None:
            g = op("mul", g, cast(ctx.load(weight, (at[dim],), ext), dtype))
        if reduction == 1:
            g = op("div", g, cast(ctx.load(total, (), ext), dtype))
        mine = op("logical_and", op("eq", label, index_value(at[dim])), op("ne", label, const(ignored, "int64")))
        return op("where", mine, g, const(0, dtype))

    return ctx.pointwise(node.results[0], meta, value)


# ---- what was taken out of a tensor ----------------------------------------------------------------------------------------


@ROWS.lowers("slice_backward")
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


@ROWS.lowers("diagonal_backward")
def _diagonal(ctx: Context, node: Node, grad: View, sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if 0 in grad.sizes or 0 in meta.sizes:
        return NotImplemented
    dim1, dim2 = dim1 % len(sizes), dim2 % len(sizes)

    def value(at: Any, ext: Any) -> Expr:
        rest = [p for d, p in enumerate(at) if d not in (dim1, dim2)]
        along = at[dim1] if offset >= 0 else at[dim2]
        inside = [op("eq", index_value(at[dim1] + offset), index_value(at[dim2])), op("lt", index_value(along), const(grad.sizes[-1], "int64"))]
        return _or_zero(ctx, grad, (*rest, along), inside, ext)

    return ctx.pointwise(node.results[0], meta, value)


@ROWS.lowers("select_backward")
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
