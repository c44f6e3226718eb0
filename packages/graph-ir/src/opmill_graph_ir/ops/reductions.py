"""Reductions, softmax and normalisations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Meta, Node
from ..dense import contiguous
from ..loops.index import ZERO, Index, index
from ..loops.ir import Axis, Expr, Reduction, Ref
from .context import Context, View
from .exprs import FLOATS, INTEGERS, cast, const, index_value, op, wide
from .records import Rows
from .views import on_vectors, reshape

ROWS = Rows()
_OF_NOTHING = {"sum": 0, "prod": 1, "any": False, "all": True}
"""What reductions of no elements give."""


def dims_of(x: View, dim: Any) -> list[int]:
    """The dimensions that a reduction's argument ``dim`` names, counted from the front; all for None and for an empty list."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(len(x.sizes)))
    return sorted({d % max(len(x.sizes), 1) for d in (dim if isinstance(dim, (list, tuple)) else [dim])} if x.sizes else ())


def full_position(x: View, dims: Sequence[int], outer: Sequence[Index], inner: Sequence[Index], keepdim: bool) -> list[Index]:
    """The position in ``x`` from those of the result and of the reduced dimensions."""
    outs, ins = list(outer), list(inner)
    position = []
    for d in range(len(x.sizes)):
        if d in dims:
            position.append(ins.pop(0))
            if keepdim:
                outs.pop(0)
        else:
            position.append(outs.pop(0))
    return position


def _result(ctx: Context, node: Node, k: int = 0) -> tuple[str | None, Meta]:
    return node.results[k], ctx.metas[node.results[k] or ""]


def reduced(
    ctx: Context, node: Node, x: View, dim: Any, keepdim: bool, kind: str, dtype: str,
    prepare: Callable[[Expr], Expr] = lambda e: e, finish: Callable[[Expr, int], Expr] = lambda e, n: e, source: str | None = None,
) -> Any:  # fmt: skip
    """One reduction over dimensions, accumulated in ``dtype``, of what ``prepare`` makes of an element (in ``source``, else in
    ``dtype``)."""
    dims = dims_of(x, dim)
    sizes = [x.sizes[d] for d in dims]
    if 0 in x.sizes:
        if kind not in _OF_NOTHING:
            return NotImplemented
        return ctx.pointwise(*_result(ctx, node), lambda at, ext: finish(const(_OF_NOTHING[kind], dtype), 0))

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        value = prepare(cast(ctx.load(x, full_position(x, dims, outer, inner, keepdim), ext), source or dtype))
        return [Reduction(("a",), kind, value, dtype)], [finish(Ref("a", dtype), math.prod(sizes))]

    return ctx.reduce([_result(ctx, node)], sizes, make)[0]


@ROWS.lowers("sum sum.dim_IntList", complex="each part")
def _sum(ctx: Context, node: Node, x: View, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    return reduced(ctx, node, x, dim, keepdim, "sum", wide(_result(ctx, node)[1].dtype))


@ROWS.lowers("mean mean.dim", complex="each part")
def _mean(ctx: Context, node: Node, x: View, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    dtype = wide(_result(ctx, node)[1].dtype)
    return reduced(ctx, node, x, dim, keepdim, "sum", dtype, finish=lambda e, n: op("div", e, const(n, dtype)))


@ROWS.lowers("amax amin", chooses=True)
def _amax(ctx: Context, node: Node, x: View, dim: Any = (), keepdim: bool = False) -> Any:
    return reduced(ctx, node, x, dim, keepdim, _kind("amax" in node.func.name(), x.dtype), wide(x.dtype))


def _kind(largest: bool, dtype: str) -> str:
    if dtype == "bool":
        return "any" if largest else "all"
    return "max" if largest else "min"


@ROWS.lowers("max min", chooses=True)
def _max(ctx: Context, node: Node, x: View) -> Any:
    return reduced(ctx, node, x, None, False, _kind("::max" in node.func.name(), x.dtype), wide(x.dtype))


@ROWS.lowers("prod prod.dim_int")
def _prod(ctx: Context, node: Node, x: View, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    return reduced(ctx, node, x, dim, keepdim, "prod", wide(_result(ctx, node)[1].dtype))


@ROWS.lowers("any any.dim any.dims all all.dim all.dims")
def _any(ctx: Context, node: Node, x: View, dim: Any = None, keepdim: bool = False) -> Any:
    if _result(ctx, node)[1].dtype != "bool":
        return NotImplemented
    kind = "any" if "::any" in node.func.name() else "all"
    return reduced(ctx, node, x, dim, keepdim, kind, "bool") if x.dtype == "bool" else _any_of_numbers(ctx, node, x, dim, keepdim, kind)


def _any_of_numbers(ctx: Context, node: Node, x: View, dim: Any, keepdim: bool, kind: str) -> Any:
    dims = dims_of(x, dim)
    if 0 in x.sizes:
        return NotImplemented

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        value = ctx.load(x, full_position(x, dims, outer, inner, keepdim), ext)
        return [Reduction(("a",), kind, op("ne", value, const(0, value.dtype)), "bool")], [Ref("a", "bool")]

    return ctx.reduce([_result(ctx, node)], [x.sizes[d] for d in dims], make)[0]


@ROWS.lowers("argmax argmin", chooses=True)
def _argmax(ctx: Context, node: Node, x: View, dim: Any = None, keepdim: bool = False) -> Any:
    return _arg(ctx, node, x, dim, keepdim, node.func.name().removeprefix("aten::"), [None, 0])


@ROWS.lowers("max.dim min.dim", chooses=True)
def _max_dim(ctx: Context, node: Node, x: View, dim: int, keepdim: bool = False) -> Any:
    return _arg(ctx, node, x, dim, keepdim, "arg" + node.func.name()[6:9], [0, 1])


def _arg(ctx: Context, node: Node, x: View, dim: Any, keepdim: bool, kind: str, which: list[int | None]) -> Any:
    dims, dtype = dims_of(x, dim), wide(x.dtype).replace("bool", "uint8")
    if 0 in x.sizes:
        return NotImplemented

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        value = cast(ctx.load(x, full_position(x, dims, outer, inner, keepdim), ext), dtype)
        both: list[Expr] = [Ref("a", dtype), Ref("b", "int64")]
        return [Reduction(("a", "b"), kind, value, dtype)], [both[k] for k, w in enumerate(which) if w is not None]

    views = ctx.reduce([_result(ctx, node, w) for w in which if w is not None], [x.sizes[d] for d in dims], make)
    return views if len(views) > 1 else views[0]


def _spread(node: Node, var: Expr) -> Expr:
    return op("sqrt", var) if "::std" in node.func.name() else var


def _degrees(x: View, dims: Sequence[int], correction: Any) -> Any:
    """Degrees of freedom: with none left, the variance is a division by zero."""
    return max(math.prod(x.sizes[d] for d in dims) - (1 if correction is None else correction), 0)


def _squared(ctx: Context, x: View) -> str:
    """The type that squares are added in: on processors float64, as in eager, so that large numbers have a deviation."""
    return "float64" if x.dtype in FLOATS and traits_of(ctx.buffers[x.buffer].device).processor else wide(x.dtype)


@ROWS.lowers("var.correction std.correction")
def _var(ctx: Context, node: Node, x: View, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Any:
    dims, dtype = dims_of(x, dim), _squared(ctx, x)
    if 0 in x.sizes:
        return ctx.pointwise(*_result(ctx, node), lambda at, ext: const(math.nan, dtype))
    left = _degrees(x, dims, correction)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        value = cast(ctx.load(x, full_position(x, dims, outer, inner, keepdim), ext), dtype)
        var = op("div", Ref("m2", dtype), const(left, dtype))
        return [Reduction(("mean", "m2"), "welford", value, dtype)], [_spread(node, var)]

    return ctx.reduce([_result(ctx, node)], [x.sizes[d] for d in dims], make)[0]


@ROWS.lowers("var_mean.correction std_mean.correction")
def _var_mean(ctx: Context, node: Node, x: View, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Any:
    dims, dtype = dims_of(x, dim), _squared(ctx, x)
    if 0 in x.sizes:
        return [ctx.pointwise(*_result(ctx, node, k), lambda at, ext: const(math.nan, dtype)) for k in range(2)]
    left = _degrees(x, dims, correction)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        value = cast(ctx.load(x, full_position(x, dims, outer, inner, keepdim), ext), dtype)
        return [Reduction(("mean", "m2"), "welford", value, dtype)], [
            _spread(node, op("div", Ref("m2", dtype), const(left, dtype))),
            Ref("mean", dtype),
        ]

    return ctx.reduce([_result(ctx, node, 0), _result(ctx, node, 1)], [x.sizes[d] for d in dims], make)


# ---- softmax -------------------------------------------------------------------------------------------------------


def _row_reduce(ctx: Context, x: View, dim: int, dtype: str, kind: str, value: Callable[..., Expr]) -> View:
    """Reduces dimension ``dim`` (kept with size one) of a function of the position."""
    sizes = (*x.sizes[:dim], 1, *x.sizes[dim + 1 :])
    meta = Meta(dtype, sizes, contiguous(sizes), ctx.buffers[x.buffer].device)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        at = (*outer[:dim], inner[0], *outer[dim + 1 :])
        return [Reduction(("a",), kind, value(at, ext), dtype)], [Ref("a", dtype)]

    return ctx.reduce([(None, meta)], [x.sizes[dim]], make)[0]


@ROWS.lowers("_softmax _log_softmax _safe_softmax")
@on_vectors
def _softmax(ctx: Context, node: Node, x: View, dim: int, *_: Any, **__: Any) -> Any:
    name, meta = _result(ctx, node)
    if 0 in x.sizes or not x.sizes or x.dtype not in FLOATS or meta.dtype != x.dtype:
        return NotImplemented
    kind = node.func.name()
    return softmax(ctx, name, meta, x, dim % len(x.sizes), log="log" in kind, safe="_safe" in kind)


def softmax(ctx: Context, name: str | None, meta: Meta, x: View, dim: int, *, log: bool = False, safe: bool = False) -> View:
    """The softmax of ``x`` along ``dim``, of sizes that are not zero, or its logarithm. ``safe``: rows of nothing but -inf give zeros."""
    dtype = wide(x.dtype)
    top = _row_reduce(ctx, x, dim, dtype, "max", lambda at, ext: ctx.load(x, at, ext))

    def shifted(at: Any, ext: Any) -> Expr:
        return op("sub", ctx.load(x, at, ext), ctx.load_broadcast(top, at, ext))

    total = _row_reduce(ctx, x, dim, dtype, "sum", lambda at, ext: op("exp", shifted(at, ext)))

    def logarithm(at: Any, ext: Any) -> Expr:
        return op("sub", shifted(at, ext), op("log", ctx.load_broadcast(total, at, ext)))

    def share(at: Any, ext: Any) -> Expr:
        above, below = op("exp", shifted(at, ext)), ctx.load_broadcast(total, at, ext)
        if meta.dtype != dtype:  # a sum of 1 or more, and a rounding far below that of half precision
            return op("mul", above, op("reciprocal", below))
        return op("div", above, below)

    def or_zero(at: Any, ext: Any) -> Expr:
        nothing = op("eq", ctx.load_broadcast(top, at, ext), const(-math.inf, dtype))
        return op("where", nothing, const(0, dtype), share(at, ext))

    return ctx.pointwise(name, meta, logarithm if log else or_zero if safe else share)


# ---- normalisations ------------------------------------------------------------------------------------------------


def _statistics(ctx: Context, x: View, split: int, count: int, make: Callable[[Expr, Expr], tuple[Reduction, list[Expr]]]) -> list[View]:
    """``count`` buffers over the dimensions from ``split`` on, which are kept with size one: ``make(element, elements)`` gives the
    reduction and its results."""
    dtype = wide(x.dtype)
    inner = x.sizes[split:]
    sizes = (*x.sizes[:split], *(1 for _ in inner))

    def of_row(outer: Any, loops: Any, ext: Any) -> Any:
        reduction, values = make(ctx.load(x, (*outer[:split], *loops), ext), const(math.prod(inner), dtype))
        return [reduction], values

    return ctx.reduce([(None, Meta(dtype, sizes, contiguous(sizes), ctx.buffers[x.buffer].device))] * count, inner, of_row)


def _normalised(ctx: Context, x: View, split: int, eps: float) -> list[View]:
    """Mean and reciprocal deviation over the dimensions from ``split`` on, which are kept with size one."""
    dtype = wide(x.dtype)

    def make(value: Expr, n: Expr) -> tuple[Reduction, list[Expr]]:
        var = op("div", Ref("m2", dtype), n)
        return Reduction(("mean", "m2"), "welford", value, dtype), [Ref("mean", dtype), op("rsqrt", op("add", var, const(eps, dtype)))]

    return _statistics(ctx, x, split, 2, make)


def _renamed(ctx: Context, node: Node, k: int, source: View) -> View | None:
    """A result that few ask for: a copy, dead where nobody reads it."""
    name = node.results[k]
    if name is None or 0 in ctx.metas[name].sizes:
        return None if name is None else NotImplemented
    view = reshape(source, ctx.metas[name].sizes)
    if view.dtype != ctx.metas[name].dtype:
        return ctx.pointwise(name, ctx.metas[name], lambda at, ext: ctx.read(view, at, ext)) if name in ctx.used else view
    return view


@ROWS.lowers("native_layer_norm", normalizes="rows", gradient="native_layer_norm_backward")
def _layer_norm(ctx: Context, node: Node, x: View, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    name, meta = _result(ctx, node)
    if 0 in x.sizes or x.dtype not in FLOATS:
        return NotImplemented
    split = len(x.sizes) - len(shape)
    mean, rstd = _normalised(ctx, x, split, eps)

    def value(at: Any, ext: Any) -> Expr:
        y = op("mul", op("sub", ctx.load(x, at, ext), ctx.load_broadcast(mean, at, ext)), ctx.load_broadcast(rstd, at, ext))
        if weight is not None:
            y = op("mul", y, cast(ctx.load_broadcast(weight, at, ext), y.dtype))
        return y if bias is None else op("add", y, cast(ctx.load_broadcast(bias, at, ext), y.dtype))

    out = ctx.pointwise(name, meta, value)
    return [out, _renamed(ctx, node, 1, mean), _renamed(ctx, node, 2, rstd)]


@ROWS.lowers("_fused_rms_norm")
def _rms_norm(ctx: Context, node: Node, x: View, shape: Sequence[int], weight: Any, eps: float | None) -> Any:
    """What ``rms_norm`` is on GPUs; elsewhere capture sees it taken apart."""
    name, meta = _result(ctx, node)
    if 0 in x.sizes or x.dtype not in FLOATS:
        return NotImplemented
    dtype, split = wide(x.dtype), len(x.sizes) - len(shape)
    least = torch.finfo(getattr(torch, dtype)).eps if eps is None else eps

    def make(value: Expr, n: Expr) -> tuple[Reduction, list[Expr]]:
        mean = op("div", Ref("a", dtype), n)
        return Reduction(("a",), "sum", op("mul", value, value), dtype), [op("rsqrt", op("add", mean, const(least, dtype)))]

    [rstd] = _statistics(ctx, x, split, 1, make)

    def value(at: Any, ext: Any) -> Expr:
        y = op("mul", ctx.load(x, at, ext), ctx.load_broadcast(rstd, at, ext))
        return y if weight is None else op("mul", y, cast(ctx.load_broadcast(weight, at, ext), dtype))

    return [ctx.pointwise(name, meta, value), _renamed(ctx, node, 1, rstd)]


@ROWS.lowers("native_group_norm", normalizes="groups", gradient="native_group_norm_backward")
def _group_norm(ctx: Context, node: Node, x: View, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float) -> Any:
    name, meta = _result(ctx, node)
    if 0 in x.sizes or x.dtype not in FLOATS:
        return NotImplemented
    mean, rstd = _normalised(ctx, reshape(x, (n, groups, c // groups, *x.sizes[2:])), 2, eps)  # images may lie channels last
    per_channel = [reshape(expand_last(reshape(v, (n, groups, 1)), c // groups), (n, c)) for v in (mean, rstd)]

    def value(at: Any, ext: Any) -> Expr:
        m, r = (ctx.load(v, at[:2], ext) for v in per_channel)
        y = op("mul", op("sub", ctx.load(x, at, ext), m), r)
        if weight is not None:
            y = op("mul", y, cast(ctx.load(weight, at[1:2], ext), y.dtype))
        return y if bias is None else op("add", y, cast(ctx.load(bias, at[1:2], ext), y.dtype))

    out = ctx.pointwise(name, meta, value)
    return [out, _renamed(ctx, node, 1, mean), _renamed(ctx, node, 2, rstd)]


def expand_last(x: View, size: int) -> View:
    """``x``, whose last dimension is one, repeated along it."""
    sizes = (*x.sizes[:-1], size)
    axes = tuple(index(f"v{k}") for k in range(len(sizes)))
    extents = {f"v{k}": n for k, n in enumerate(sizes)}
    return View(x.buffer, x.dtype, sizes, x.at((*axes[:-1], ZERO), extents))


__all__ = ["INTEGERS", "ROWS", "Axis", "index_value"]
