"""Activations and their gradients, side by side. float16 and bfloat16 are computed in float32, as eager does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..capture.graph import Node
from ..loops.ir import Expr
from .context import Context, View
from .exprs import FLOATS, INTEGERS, cast, const, op, wide
from .pointwise import of_floats, row
from .records import Rows
from .views import sliced

ROWS = Rows()


def _c(x: Expr, value: float) -> Expr:
    return const(value, x.dtype)


def _pick(condition: Expr, x: Expr, y: Expr) -> Expr:
    return op("where", condition, x, y)


row(ROWS, "sigmoid", gradient="sigmoid_backward", dtypes=FLOATS)(lambda x: op("sigmoid", x))
row(ROWS, "tanh", gradient="tanh_backward", dtypes=FLOATS)(lambda x: op("tanh", x))
row(ROWS, "relu", gradient="threshold_backward")(lambda x: op("max", x, _c(x, 0)))


@row(ROWS, "gelu", gradient="gelu_backward", dtypes=FLOATS)
def _gelu(x: Expr, *, approximate: str = "none") -> Expr:
    half = op("mul", _c(x, 0.5), x)
    if approximate == "tanh":
        cube = op("mul", op("mul", x, x), x)
        inner = op("mul", _c(x, math.sqrt(2 / math.pi)), op("add", x, op("mul", _c(x, 0.044715), cube)))
        return op("mul", half, op("add", _c(x, 1), op("tanh", inner)))
    return op("mul", half, op("add", _c(x, 1), op("erf", op("mul", x, _c(x, math.sqrt(0.5))))))


@row(ROWS, "silu", gradient="silu_backward", dtypes=FLOATS)
def _silu(x: Expr) -> Expr:
    return op("div", x, op("add", _c(x, 1), op("exp", op("neg", x))))


def _relu6(x: Expr) -> Expr:
    return op("min", op("max", op("add", x, _c(x, 3)), _c(x, 0)), _c(x, 6))


row(ROWS, "hardsigmoid", gradient="hardsigmoid_backward", dtypes=FLOATS)(lambda x: op("div", _relu6(x), _c(x, 6)))
row(ROWS, "hardswish", gradient="hardswish_backward", dtypes=FLOATS)(lambda x: op("div", op("mul", x, _relu6(x)), _c(x, 6)))


# torch 2.15 takes numbers without a sign, too: a limit below zero is none of these
@row(ROWS, "hardtanh", gradient="hardtanh_backward", dtypes=(*FLOATS, *(name for name in INTEGERS if name != "uint8")))
def _hardtanh(x: Expr, lo: Any = None, hi: Any = None) -> Expr:
    return op("min", op("max", x, lo or _c(x, -1)), hi or _c(x, 1))


@row(ROWS, "leaky_relu", gradient="leaky_relu_backward", dtypes=FLOATS)
def _leaky_relu(x: Expr, slope: Any = None) -> Expr:
    return op("where", op("gt", x, _c(x, 0)), x, op("mul", x, slope or _c(x, 0.01)))


@row(ROWS, "elu", gradient="elu_backward", dtypes=FLOATS)
def _elu(x: Expr, alpha: Any = None, scale: Any = None, input_scale: Any = None) -> Expr:
    one = _c(x, 1)
    alpha, scale, inner = alpha or one, scale or one, input_scale or one
    negative = op("mul", op("mul", op("expm1", op("mul", x, inner)), alpha), scale)
    return op("where", op("le", x, _c(x, 0)), negative, op("mul", x, scale))


def _softplus_of(x: Expr, beta: Expr, threshold: Expr) -> Expr:
    scaled = op("mul", x, beta)
    return op("where", op("gt", scaled, threshold), x, op("div", op("log1p", op("exp", scaled)), beta))


@row(ROWS, "softplus", gradient="softplus_backward", dtypes=FLOATS)
def _softplus(x: Expr, beta: Any = None, threshold: Any = None) -> Expr:
    return _softplus_of(x, beta or _c(x, 1), threshold or _c(x, 20))


row(ROWS, "mish", gradient="mish_backward", dtypes=FLOATS)(lambda x: op("mul", x, op("tanh", op("log1p", op("exp", x)))))


@row(ROWS, "celu", gradient="elu_backward", dtypes=FLOATS)
def _celu(x: Expr, alpha: Any = None) -> Expr:
    alpha = alpha or _c(x, 1)
    return _pick(op("le", x, _c(x, 0)), op("mul", alpha, op("expm1", op("div", x, alpha))), x)


@row(ROWS, "threshold", gradient="threshold_backward")
def _threshold(x: Expr, limit: Expr, value: Expr) -> Expr:
    return _pick(op("le", x, limit), value, x)


@row(ROWS, "hardshrink", gradient="hardshrink_backward", dtypes=FLOATS)
def _hardshrink(x: Expr, lambd: Any = None) -> Expr:
    lambd = lambd or _c(x, 0.5)
    inside = op("logical_and", op("ge", x, op("neg", lambd)), op("le", x, lambd))
    return _pick(inside, _c(x, 0), x)


@row(ROWS, "softshrink", gradient="softshrink_backward", dtypes=FLOATS)
def _softshrink(x: Expr, lambd: Any = None) -> Expr:
    lambd = lambd or _c(x, 0.5)
    small = _pick(op("isnan", x), x, _c(x, 0))
    return _pick(op("gt", x, lambd), op("sub", x, lambd), _pick(op("lt", x, op("neg", lambd)), op("add", x, lambd), small))


@row(ROWS, "_prelu_kernel", gradient="_prelu_kernel_backward", dtypes=FLOATS)
def _prelu(x: Expr, w: Expr) -> Expr:
    return _pick(op("gt", x, _c(x, 0)), x, op("mul", w, x))


def log_sigmoid(x: Expr) -> Expr:
    """``log(1 / (1 + exp(-x)))`` without overflow: ``min(x, 0) - log1p(exp(-abs(x)))``."""
    return op("sub", op("min", x, _c(x, 0)), op("log1p", op("exp", op("neg", op("abs", x)))))


@ROWS.lowers("log_sigmoid_forward", gradient="log_sigmoid_backward")
def _log_sigmoid_forward(ctx: Context, node: Node, x: View) -> Any:
    """With what the backward wants: exp(-abs(x)), which has no elements on other devices than the CPU."""
    first, second = (ctx.metas[r or ""] for r in node.results)
    wanted = node.results[1] in ctx.used
    if x.dtype not in FLOATS or (wanted and len(second.sizes) != len(first.sizes)):
        return NotImplemented
    out = ctx.pointwise(node.results[0], first, lambda at, ext: log_sigmoid(ctx.load(x, at, ext)))
    if not wanted:
        return [out, None]
    return [out, ctx.pointwise(node.results[1], second, lambda at, ext: op("exp", op("neg", op("abs", ctx.load(x, at, ext)))))]


@ROWS.lowers("glu", gradient="glu_backward")
def _glu(ctx: Context, node: Node, x: View, dim: int = -1) -> Any:
    dim %= len(x.sizes)
    half = x.sizes[dim] // 2
    if x.dtype not in FLOATS or not half:
        return NotImplemented
    a, b = (sliced(x, dim, k * half, half) for k in range(2))
    meta = ctx.metas[node.results[0] or ""]
    return ctx.pointwise(node.results[0], meta, lambda at, ext: op("mul", ctx.load(a, at, ext), op("sigmoid", ctx.load(b, at, ext))))


# ---- gradients -----------------------------------------------------------------------------------------------------


def _declare(name: str, fn: Callable[[Expr, Expr], Expr]) -> None:
    """A row for ``name(grad, tensor)``."""
    ROWS.pointwise(name)(lambda ctx, node, grad, x: of_floats(ctx, node, [grad, x], fn))


def _silu_gradient(g: Expr, x: Expr) -> Expr:
    s = op("sigmoid", x)
    return op("mul", g, op("mul", s, op("add", _c(x, 1), op("mul", x, op("sub", _c(x, 1), s)))))


def _hardswish_gradient(g: Expr, x: Expr) -> Expr:
    inner = op("mul", g, op("add", op("div", x, _c(x, 3)), _c(x, 0.5)))
    return op("where", op("ge", x, _c(x, 3)), g, op("where", op("le", x, _c(x, -3)), _c(x, 0), inner))


def _hardsigmoid_gradient(g: Expr, x: Expr) -> Expr:
    inside = op("logical_and", op("gt", x, _c(x, -3)), op("lt", x, _c(x, 3)))
    return op("where", inside, op("mul", g, _c(x, 1 / 6)), _c(x, 0))


_declare("silu_backward", _silu_gradient)
_declare("hardswish_backward", _hardswish_gradient)
_declare("hardsigmoid_backward", _hardsigmoid_gradient)
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


@ROWS.pointwise("gelu_backward")
def _gelu_gradient(ctx: Context, node: Node, grad: View, x: View, *, approximate: str = "none") -> Any:
    return of_floats(ctx, node, [grad, x], _gelu_tanh if approximate == "tanh" else _gelu_erf)


@ROWS.pointwise("threshold_backward")
def _threshold_gradient(ctx: Context, node: Node, grad: View, x: View, limit: float) -> Any:
    return of_floats(ctx, node, [grad, x], lambda g, x: op("where", op("le", x, _c(x, limit)), _c(x, 0), g))


@ROWS.pointwise("hardtanh_backward")
def _hardtanh_gradient(ctx: Context, node: Node, grad: View, x: View, low: float, high: float) -> Any:
    def value(g: Expr, x: Expr) -> Expr:
        return op("where", op("logical_and", op("gt", x, _c(x, low)), op("lt", x, _c(x, high))), g, _c(x, 0))

    return of_floats(ctx, node, [grad, x], value)


@ROWS.pointwise("leaky_relu_backward")
def _leaky_relu_gradient(ctx: Context, node: Node, grad: View, x: View, slope: float, of_result: bool) -> Any:
    return of_floats(ctx, node, [grad, x], lambda g, x: op("where", op("gt", x, _c(x, 0)), g, op("mul", g, _c(x, slope))))


@ROWS.lowers("rrelu_with_noise_functional")
def _rrelu(ctx: Context, node: Node, x: View, noise: View, low: float, high: float, training: bool = False, generator: Any = None) -> Any:
    """In evaluation the slope is the middle one, and the noise stays as it came."""
    if training or x.dtype not in FLOATS:
        return NotImplemented
    slope = (low + high) / 2
    return [of_floats(ctx, node, [x], lambda x: op("where", op("gt", x, _c(x, 0)), x, op("mul", x, _c(x, slope)))), noise]


_ALIKE = 1e-6


@ROWS.lowers("rrelu_with_noise_backward")
def _rrelu_gradient(
    ctx: Context, node: Node, grad: View, x: View, noise: View, low: float, high: float, training: bool, of_result: bool
) -> Any:
    """In training the noise holds the slope of each element, 1 where it is positive. Where all slopes are the same, versions of torch
    differ in whether they look at it."""
    if training:
        alike = high - low <= _ALIKE
        return NotImplemented if alike else of_floats(ctx, node, [grad, noise], lambda g, slope: op("mul", g, slope))
    return _leaky_relu_gradient(ctx, node, grad, x, (low + high) / 2, of_result)


@ROWS.pointwise("elu_backward")
def _elu_gradient(ctx: Context, node: Node, grad: View, alpha: float, scale: float, input_scale: float, of_result: bool, x: View) -> Any:
    def value(g: Expr, x: Expr) -> Expr:
        if of_result:
            negative = op("mul", _c(x, input_scale), op("add", x, _c(x, alpha * scale)))
        else:
            negative = op("mul", _c(x, input_scale * alpha * scale), op("exp", op("mul", x, _c(x, input_scale))))
        return op("where", op("gt", x, _c(x, 0)), op("mul", g, _c(x, scale)), op("mul", g, negative))

    return of_floats(ctx, node, [grad, x], value)


@ROWS.pointwise("softplus_backward")
def _softplus_gradient(ctx: Context, node: Node, grad: View, x: View, beta: float, threshold: float) -> Any:
    def value(g: Expr, x: Expr) -> Expr:
        z = op("exp", op("mul", x, _c(x, beta)))
        slope = op("div", op("mul", g, z), op("add", z, _c(x, 1)))
        return op("where", op("gt", op("mul", x, _c(x, beta)), _c(x, threshold)), g, slope)

    return of_floats(ctx, node, [grad, x], value)


@ROWS.pointwise("hardshrink_backward softshrink_backward")
def _shrink(ctx: Context, node: Node, grad: View, x: View, limit: float) -> Any:
    def value(g: Expr, x: Expr) -> Expr:
        outside = op("logical_or", op("lt", x, _c(x, -limit)), op("gt", x, _c(x, limit)))
        return op("where", outside, g, _c(x, 0))

    return of_floats(ctx, node, [grad, x], value)


@ROWS.pointwise("mish_backward")
def _mish_gradient(ctx: Context, node: Node, grad: View, x: View) -> Any:
    def value(g: Expr, x: Expr) -> Expr:
        t = op("tanh", op("log1p", op("exp", x)))
        slope = op("mul", op("mul", x, op("sigmoid", x)), op("sub", _c(x, 1), op("mul", t, t)))
        return op("mul", g, op("add", t, slope))

    return of_floats(ctx, node, [grad, x], value)


@ROWS.lowers("_prelu_kernel_backward", any_layout=True)
def _prelu_gradient(ctx: Context, node: Node, grad: View, x: View, weight: View) -> Any:
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


__all__ = ["ROWS", "log_sigmoid"]
