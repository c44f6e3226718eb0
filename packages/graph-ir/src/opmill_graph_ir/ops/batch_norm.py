"""Batch norm, with given statistics and with the batch's own, and the backward of both."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..capture.graph import Meta, Node
from ..loops.ir import Expr, Reduction, Ref
from .context import Context, View
from .exprs import FLOATS, cast, const, op, wide
from .records import Rows

ROWS = Rows()


def _result(ctx: Context, node: Node, k: int) -> tuple[str | None, Meta]:
    return node.results[k], ctx.metas[node.results[k] or ""]


def _used(ctx: Context, node: Node, k: int) -> bool:
    return node.results[k] is not None and node.results[k] in ctx.used


def _copy(ctx: Context, node: Node, k: int, view: View) -> View | None:
    """``view`` as result ``k``, where that is used."""
    return ctx.pointwise(*_result(ctx, node, k), lambda at, ext: ctx.load(view, at, ext)) if _used(ctx, node, k) else None


def _channel(ctx: Context, t: View, at: Any, ext: Any, dtype: str) -> Expr:
    """The element of a tensor by channel [C] at a position of the input [N, C, ...]."""
    return cast(ctx.load(t, at[1:2], ext), dtype)


def _scaled(ctx: Context, weight: Any, bias: Any, y: Expr, at: Any, ext: Any) -> Expr:
    if weight is not None:
        y = op("mul", y, _channel(ctx, weight, at, ext, y.dtype))
    return y if bias is None else op("add", y, _channel(ctx, bias, at, ext, y.dtype))


def _given(ctx: Context, node: Node, x: View, weight: Any, bias: Any, mean: View, var: View, eps: float) -> View:
    def value(at: Any, ext: Any) -> Expr:
        y = ctx.load(x, at, ext)
        m, v = (_channel(ctx, t, at, ext, y.dtype) for t in (mean, var))
        scale = op("rsqrt", op("add", v, const(eps, y.dtype)))
        if weight is not None:
            scale = op("mul", scale, _channel(ctx, weight, at, ext, y.dtype))
        y = op("mul", op("sub", y, m), scale)
        return y if bias is None else op("add", y, _channel(ctx, bias, at, ext, y.dtype))

    return ctx.pointwise(*_result(ctx, node, 0), value)


def _of_batch(
    ctx: Context, node: Node, x: View, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> list[View | None]:
    """The normalised input, the batch's mean and reciprocal deviation by channel, and the running statistics moved on."""
    dtype, count = wide(x.dtype), x.sizes[0] * math.prod(x.sizes[2:])
    by_channel = Meta(dtype, (x.sizes[1],), (1,), ctx.buffers[x.buffer].device)

    def statistics(outer: Any, inner: Any, ext: Any) -> Any:
        value = ctx.load(x, (inner[0], outer[0], *inner[1:]), ext)
        spread = op("div", Ref("m2", dtype), const(count, dtype))
        values = [Ref("mean", dtype), op("rsqrt", op("add", spread, const(eps, dtype))), Ref("m2", dtype)]
        return [Reduction(("mean", "m2"), "welford", value, dtype)], values

    inner = [n for d, n in enumerate(x.sizes) if d != 1]
    center, rstd, m2 = ctx.reduce([(None, by_channel)] * 3, inner, statistics)

    def value(at: Any, ext: Any) -> Expr:
        y = op("mul", op("sub", ctx.load(x, at, ext), ctx.load(center, at[1:2], ext)), ctx.load(rstd, at[1:2], ext))
        return _scaled(ctx, weight, bias, y, at, ext)

    def moved(old: View, new: Callable[[Any, Any], Expr]) -> Callable[[Any, Any], Expr]:
        return lambda at, ext: op(
            "add",
            op("mul", const(momentum, dtype), new(at, ext)),
            op("mul", const(1 - momentum, dtype), cast(ctx.load(old, at, ext), dtype)),
        )

    out: list[View | None] = [ctx.pointwise(*_result(ctx, node, 0), value)]
    out += [_copy(ctx, node, 1, center), _copy(ctx, node, 2, rstd)]
    if len(node.results) == 5:
        unbiased = const(max(count - 1, 1), dtype)
        news = (lambda at, ext: ctx.load(center, at, ext)), (lambda at, ext: op("div", ctx.load(m2, at, ext), unbiased))
        for k, old, new in ((3, mean, news[0]), (4, var, news[1])):
            out.append(ctx.pointwise(*_result(ctx, node, k), moved(old, new)) if _used(ctx, node, k) else None)
    return out


@ROWS.lowers(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional",
    normalizes="channels",
    any_layout=True,
    gradient="native_batch_norm_backward",
)
@ROWS.lowers("_native_batch_norm_legit.no_stats", normalizes="channels", any_layout=True, gradient="native_batch_norm_backward")
@ROWS.lowers("_native_batch_norm_legit_no_training", any_layout=True, gradient="native_batch_norm_backward")
def _batch_norm(ctx: Context, node: Node, x: View, weight: Any, bias: Any, *rest: Any) -> Any:
    mean, var, training, momentum, eps = _arguments(node.func.name(), rest)
    if x.dtype not in FLOATS or 0 in x.sizes or len(x.sizes) < 2:
        return NotImplemented
    if not training:
        kept = [_result(ctx, node, k) if _used(ctx, node, k) else None for k in range(1, len(node.results))]
        if mean is None or var is None or any(r is not None and r[1].sizes != (0,) for r in kept):
            return NotImplemented
        nothing = [
            None if r is None else ctx.pointwise(r[0], r[1], lambda at, ext: const(0.0, "float32")) for r in kept
        ]  # the backward is handed it
        return [_given(ctx, node, x, weight, bias, mean, var, eps), *nothing]
    moves_statistics = mean is not None and len(node.results) == 3  # writes that the schema does not tell of
    if moves_statistics or x.sizes[0] * math.prod(x.sizes[2:]) < 2:
        return NotImplemented
    return _of_batch(ctx, node, x, weight, bias, mean, var, momentum, eps)


def _arguments(name: str, rest: tuple[Any, ...]) -> tuple[Any, Any, bool, float, float]:
    if name.endswith("no_stats"):
        training, momentum, eps = rest
        return None, None, training, momentum, eps
    if name.endswith("no_training"):
        mean, var, momentum, eps = rest
        return mean, var, False, momentum, eps
    mean, var, training, momentum, eps = rest
    return mean, var, training, momentum, eps


@ROWS.lowers("native_batch_norm_backward", any_layout=True)
def _backward(
    ctx: Context,
    node: Node,
    grad: View,
    x: View,
    weight: Any,
    mean: Any,
    var: Any,
    center: Any,
    rstd: Any,
    training: bool,
    eps: float,
    mask: Any,
) -> Any:
    """With ``h = (x - mean) * rstd``: the gradient of the bias is ``sum g``, of the weight ``sum g*h``, of the input
    ``weight * rstd * (g - sum g / n - h * sum g*h / n)``, or ``weight * rstd * g`` where the statistics were given."""
    dtype = wide(x.dtype)
    if x.dtype not in FLOATS or 0 in x.sizes or len(x.sizes) < 2 or (center if training else mean) is None:
        return NotImplemented
    count = const(x.sizes[0] * math.prod(x.sizes[2:]), dtype)
    by_channel = Meta(dtype, (x.sizes[1],), (1,), ctx.buffers[x.buffer].device)

    def scale(at: Any, ext: Any) -> Expr:
        if training:
            return _channel(ctx, rstd, at, ext, dtype)
        return op("rsqrt", op("add", _channel(ctx, var, at, ext, dtype), const(eps, dtype)))

    def parts(at: Any, ext: Any) -> tuple[Expr, Expr]:
        """The gradient and the normalised input."""
        away = op("sub", ctx.load(x, at, ext), _channel(ctx, center if training else mean, at, ext, dtype))
        return cast(ctx.load(grad, at, ext), dtype), op("mul", away, scale(at, ext))

    def sums(outer: Any, inner: Any, ext: Any) -> Any:
        g, h = parts((inner[0], outer[0], *inner[1:]), ext)
        return [Reduction(("a",), "sum", g, dtype), Reduction(("b",), "sum", op("mul", g, h), dtype)], [Ref("a", dtype), Ref("b", dtype)]

    total, along = ctx.reduce([(None, by_channel)] * 2, [n for d, n in enumerate(x.sizes) if d != 1], sums)

    def value(at: Any, ext: Any) -> Expr:
        g, h = parts(at, ext)
        if training:
            a, b = (op("div", _channel(ctx, s, at, ext, dtype), count) for s in (total, along))
            g = op("sub", op("sub", g, a), op("mul", h, b))
        g = op("mul", g, scale(at, ext))
        return g if weight is None else op("mul", g, _channel(ctx, weight, at, ext, dtype))

    out: list[View | None] = [ctx.pointwise(*_result(ctx, node, 0), value) if _used(ctx, node, 0) else None]
    return [*out, _copy(ctx, node, 1, along), _copy(ctx, node, 2, total)]
