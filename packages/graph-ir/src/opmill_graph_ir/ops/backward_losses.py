"""Backward operators of losses by element, and of what halves its input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..capture.graph import Meta, Node
from ..loops.index import mod
from ..loops.ir import Const, Expr
from .context import Context, View
from .exprs import FLOATS, cast, const, index_value, op, wide
from .records import Rows

ROWS = Rows()
_MEAN = 1


def _c(x: Expr, value: float) -> Const:
    return const(value, x.dtype)


def _meta(ctx: Context, node: Node) -> Meta:
    return ctx.metas[node.results[0] or ""]


def _slope(name: str, make: Callable[..., Callable[..., Expr]]) -> None:
    """A row for ``name(grad, x, target, *options)``; the reduction is the first option. ``make(options)`` gives the slope in x."""

    def lower(ctx: Context, node: Node, grad: View, x: View, target: View, *options: Any, **named: Any) -> Any:
        meta = _meta(ctx, node)
        dtype = wide(meta.dtype)
        weight, options = (options[0], options[1:]) if name.startswith("binary") and options else (None, options)
        reduction = named.pop("reduction", options[0] if options else _MEAN)
        if dtype not in FLOATS:
            return NotImplemented
        slope = make(*options[1:], **named)
        count = math.prod(x.sizes)

        def value(at: Any, ext: Any) -> Expr:
            g, a, t = (cast(ctx.load_broadcast(v, at, ext), dtype) for v in (grad, x, target))
            out = op("mul", slope(a, t), g)
            if weight is not None:
                out = op("mul", out, cast(ctx.load_broadcast(weight, at, ext), dtype))
            return op("div", out, const(count, dtype)) if reduction == _MEAN else out

        return ctx.pointwise(node.results[0], meta, value)

    ROWS.lowers(name)(lower)


def _sign_within(d: Expr, limit: float, inside: Expr) -> Expr:
    """-1, ``inside`` or 1 for ``d`` below, within and above ``limit``."""
    high = op("where", op("ge", d, _c(d, limit)), _c(d, 1), inside)
    return op("where", op("le", d, _c(d, -limit)), _c(d, -1), high)


def _smooth_l1(beta: float = 1.0) -> Callable[..., Expr]:
    def slope(a: Expr, t: Expr) -> Expr:
        d = op("sub", a, t)
        return op("sign", d) if not beta else _sign_within(d, beta, op("div", d, _c(d, beta)))

    return slope


def _huber(delta: float = 1.0) -> Callable[..., Expr]:
    def slope(a: Expr, t: Expr) -> Expr:
        d = op("sub", a, t)
        return op("min", op("max", d, _c(d, -delta)), _c(d, delta))

    return slope


def _soft_margin() -> Callable[..., Expr]:
    def slope(a: Expr, t: Expr) -> Expr:
        z = op("exp", op("mul", op("neg", t), a))
        return op("div", op("mul", op("neg", t), z), op("add", z, _c(a, 1)))

    return slope


def _bce_slope() -> Callable[..., Expr]:
    def slope(p: Expr, t: Expr) -> Expr:
        spread = op("max", op("mul", op("sub", _c(p, 1), p), p), _c(p, 1e-12))
        return op("div", op("sub", p, t), spread)

    return slope


_slope("smooth_l1_loss_backward", _smooth_l1)
_slope("huber_loss_backward", _huber)
_slope("soft_margin_loss_backward", _soft_margin)
_slope("binary_cross_entropy_backward", _bce_slope)


@ROWS.lowers("log_sigmoid_backward")
def _log_sigmoid_backward(ctx: Context, node: Node, grad: View, x: View, buffer: View) -> Any:
    meta = _meta(ctx, node)
    dtype = wide(meta.dtype)
    if dtype not in FLOATS:
        return NotImplemented

    def value(at: Any, ext: Any) -> Expr:
        g, a = (cast(ctx.load(v, at, ext), dtype) for v in (grad, x))
        z = op("exp", op("neg", op("abs", a)))
        rest = op("div", z, op("add", _c(a, 1), z))
        negative = op("lt", a, _c(a, 0))
        return op("mul", g, op("where", negative, op("sub", _c(a, 1), rest), rest))

    return ctx.pointwise(node.results[0], meta, value)


@ROWS.lowers("glu_backward")
def _glu_backward(ctx: Context, node: Node, grad: View, x: View, dim: int) -> Any:
    meta = _meta(ctx, node)
    dtype, dim = wide(meta.dtype), dim % len(x.sizes)
    half = x.sizes[dim] // 2
    if dtype not in FLOATS or 0 in x.sizes:
        return NotImplemented

    def value(at: Any, ext: Any) -> Expr:
        first = op("lt", index_value(at[dim]), const(half, "int64"))
        place = [*at]
        place[dim] = mod(at[dim], half, ext)
        g = cast(ctx.load(grad, place, ext), dtype)
        a = cast(ctx.load(x, place, ext), dtype)
        place[dim] = place[dim] + half
        s = op("sigmoid", cast(ctx.load(x, place, ext), dtype))
        second = op("mul", op("mul", op("mul", op("sub", _c(s, 1), s), s), g), a)
        return op("where", first, op("mul", s, g), second)

    return ctx.pointwise(node.results[0], meta, value)
