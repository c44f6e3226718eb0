"""Backward operators of softmax and of the normalisations: reductions, then pointwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..capture.graph import Meta, Node
from ..loops.ir import Expr, Reduction, Ref
from .context import Context, View
from .exprs import FLOATS, cast, const, op, wide
from .records import Rows
from .views import reshape

ROWS = Rows()
_Values = Callable[[Any, Any], Sequence[Expr]]
"""Expressions from a position in the full space and the extents of its axes."""


def _sums(ctx: Context, device: str, sizes: Sequence[int], dims: Sequence[int], dtype: str, count: int, values: _Values) -> list[View]:
    """``count`` sums over ``dims``, which are kept with size one."""
    kept = tuple(1 if d in dims else n for d, n in enumerate(sizes))
    strides = tuple(math.prod(kept[d + 1 :]) for d in range(len(kept)))
    meta = Meta(dtype, kept, strides, device)
    names = [f"a{k}" for k in range(count)]

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        loops = list(inner)
        at = tuple(loops.pop(0) if d in dims else outer[d] for d in range(len(sizes)))
        reductions = [Reduction((n,), "sum", v, dtype) for n, v in zip(names, values(at, ext), strict=True)]
        return reductions, [Ref(n, dtype) for n in names]

    return ctx.reduce([(None, meta)] * count, [sizes[d] for d in dims], make)


# ---- softmax -----------------------------------------------------------------------------------------------------------------


@ROWS.lowers("_softmax_backward_data _log_softmax_backward_data")
def _softmax(ctx: Context, node: Node, grad: View, y: View, dim: int, _dtype: Any) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if not y.sizes or 0 in y.sizes or meta.dtype not in FLOATS:
        return NotImplemented
    dim %= len(y.sizes)
    dtype = wide(y.dtype)
    log = "log" in node.func.name()

    def term(at: Any, ext: Any) -> Expr:
        g = cast(ctx.load(grad, at, ext), dtype)
        return g if log else op("mul", g, ctx.load(y, at, ext))

    known = ctx.sums.get((grad.buffer, dim)) if log and grad.indices is None else None
    total = known or _sums(ctx, meta.device, y.sizes, [dim], dtype, 1, lambda at, ext: [term(at, ext)])[0]

    def value(at: Any, ext: Any) -> Expr:
        g, out, s = cast(ctx.load(grad, at, ext), dtype), ctx.load(y, at, ext), cast(ctx.load_broadcast(total, at, ext), dtype)
        if log:
            return op("sub", g, op("mul", op("exp", out), s))
        return op("mul", out, op("sub", g, s))

    return ctx.pointwise(node.results[0], meta, value)


# ---- normalisations ----------------------------------------------------------------------------------------------------------


def _sum_result(
    ctx: Context, node: Node, k: int, sizes: Sequence[int], dims: Sequence[int], dtype: str, value: Callable[..., Expr]
) -> View:
    """Result ``k``: the sum of ``value`` over ``dims`` of the full space."""
    from_name = node.results[k]
    meta = ctx.metas[from_name or ""]
    if not dims:
        return ctx.pointwise(from_name, meta, value)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        left, loops = list(outer), list(inner)
        at = tuple(loops.pop(0) if d in dims else left.pop(0) for d in range(len(sizes)))
        return [Reduction(("a",), "sum", value(at, ext), dtype)], [Ref("a", dtype)]

    return ctx.reduce([(from_name, meta)], [sizes[d] for d in dims], make)[0]


def _wanted(ctx: Context, node: Node) -> list[bool]:
    return [r is not None and r in ctx.used for r in node.results]


@dataclass(frozen=True)
class _Normalised:
    """Gradients through ``(x - mean) * rstd * weight``; all but ``x`` are broadcast to its space. ``mean``: None where nothing is
    subtracted."""

    ctx: Context
    dtype: str
    grad: View
    x: View
    mean: View | None
    rstd: View
    weight: View | None

    def parts(self, at: Any, ext: Any) -> tuple[Expr, Expr, Expr]:
        """The gradient, the normalised input and the reciprocal deviation."""
        g, r = (cast(self.ctx.load_broadcast(v, at, ext), self.dtype) for v in (self.grad, self.rstd))
        x = self.ctx.load(self.x, at, ext)
        centered = x if self.mean is None else op("sub", x, cast(self.ctx.load_broadcast(self.mean, at, ext), self.dtype))
        return g, op("mul", centered, r), r

    def scaled(self, g: Expr, at: Any, ext: Any) -> Expr:
        return g if self.weight is None else op("mul", g, cast(self.ctx.load_broadcast(self.weight, at, ext), self.dtype))

    def terms(self, at: Any, ext: Any) -> list[Expr]:
        """What is summed over the normalised dimensions: the scaled gradient along the normalised input and, where there is a mean, first
        itself."""
        g, h, _ = self.parts(at, ext)
        along = op("mul", self.scaled(g, at, ext), h)
        return [along] if self.mean is None else [self.scaled(g, at, ext), along]

    def gradient(self, sums: Sequence[View], count: Expr) -> Callable[[Any, Any], Expr]:
        """That of ``x``, from the sums of the terms over ``count`` elements."""

        def value(at: Any, ext: Any) -> Expr:
            g, h, r = self.parts(at, ext)
            *a, b = (op("div", self.ctx.load_broadcast(s, at, ext), count) for s in sums)
            scaled = self.scaled(g, at, ext)
            return op("mul", r, op("sub", op("sub", scaled, a[0]) if a else scaled, op("mul", h, b)))

        return value


@ROWS.lowers("native_layer_norm_backward")
def _layer_norm(
    ctx: Context, node: Node, grad: View, x: View, shape: Sequence[int], mean: View, rstd: View, weight: Any, bias: Any, mask: Any
) -> Any:
    split = len(x.sizes) - len(shape)
    if 0 in x.sizes or x.dtype not in FLOATS:
        return NotImplemented
    dtype = wide(x.dtype)
    inner, outer = range(split, len(x.sizes)), range(split)
    n = const(math.prod(x.sizes[split:]), dtype)
    norm = _Normalised(ctx, dtype, grad, x, mean, rstd, weight)
    wanted = _wanted(ctx, node)
    out: list[View | None] = [None, None, None]
    if wanted[0]:
        meta = ctx.metas[node.results[0] or ""]
        sums = _sums(ctx, meta.device, x.sizes, inner, dtype, 2, norm.terms)
        out[0] = ctx.pointwise(node.results[0], meta, norm.gradient(sums, n))
    if wanted[1]:
        out[1] = _sum_result(ctx, node, 1, x.sizes, outer, dtype, lambda at, ext: op("mul", *norm.parts(at, ext)[:2]))
    if wanted[2]:
        out[2] = _sum_result(ctx, node, 2, x.sizes, outer, dtype, lambda at, ext: norm.parts(at, ext)[0])
    return out


@ROWS.lowers("_fused_rms_norm_backward")
def _rms_norm(ctx: Context, node: Node, grad: View, x: View, shape: Sequence[int], rstd: View, weight: Any, mask: Any) -> Any:
    split = len(x.sizes) - len(shape)
    if 0 in x.sizes or x.dtype not in FLOATS:
        return NotImplemented
    dtype = wide(x.dtype)
    norm = _Normalised(ctx, dtype, grad, x, None, rstd, weight)
    wanted = _wanted(ctx, node)
    out: list[View | None] = [None, None]
    if wanted[0]:
        meta = ctx.metas[node.results[0] or ""]
        sums = _sums(ctx, meta.device, x.sizes, range(split, len(x.sizes)), dtype, 1, norm.terms)
        out[0] = ctx.pointwise(node.results[0], meta, norm.gradient(sums, const(math.prod(x.sizes[split:]), dtype)))
    if wanted[1]:
        out[1] = _sum_result(ctx, node, 1, x.sizes, range(split), dtype, lambda at, ext: op("mul", *norm.parts(at, ext)[:2]))
    return out


@ROWS.lowers("native_group_norm_backward")
def _group_norm(
    ctx: Context, node: Node, grad: View, x: View, mean: View, rstd: View, weight: Any, n: int, c: int, hw: int, groups: int, mask: Any
) -> Any:
    """As layer norm over [N, groups, C / groups * HW], the weight by channel."""
    if 0 in x.sizes or x.dtype not in FLOATS:
        return NotImplemented
    dtype, width = wide(x.dtype), c // groups
    sizes = (n, groups, width, hw)
    g4, x4 = reshape(grad, sizes), reshape(x, sizes)
    mean4, rstd4 = (reshape(v, (n, groups, 1, 1)) for v in (mean, rstd))
    by_channel = None if weight is None else reshape(weight, (1, groups, width, 1))
    count = const(width * hw, dtype)
    norm = _Normalised(ctx, dtype, g4, x4, mean4, rstd4, by_channel)
    wanted = _wanted(ctx, node)
    out: list[View | None] = [None, None, None]
    if wanted[0]:
        meta = ctx.metas[node.results[0] or ""]
        totals = _sums(ctx, meta.device, sizes, (2, 3), dtype, 2, norm.terms)
        dense = Meta(meta.dtype, sizes, tuple(math.prod(sizes[k + 1 :]) for k in range(4)), meta.device)
        flat = reshape(ctx.pointwise(None, dense, norm.gradient(totals, count)), x.sizes)
        out[0] = ctx.pointwise(node.results[0], meta, lambda at, ext: ctx.read(flat, at, ext))
    terms: dict[int, _Values] = {
        1: lambda at, ext: [op("mul", *norm.parts(at, ext)[:2])],
        2: lambda at, ext: [norm.parts(at, ext)[0]],
    }
    for k, values in terms.items():
        if wanted[k]:
            meta = ctx.metas[node.results[k] or ""]
            [sums] = _sums(ctx, meta.device, sizes, (0, 3), dtype, 1, values)
            out[k] = ctx.pointwise(node.results[k], meta, partial(ctx.load, reshape(sums, (c,))))
    return out
