"""Convolutions on GPUs. In half precision cuDNN's kernels read and write channels last, and would copy what lies otherwise back and
forth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of
from opmill_runtime_cache.plan.model import Literal

from ..capture.channels_last import in_odd_groups, strides_of
from ..capture.graph import Meta, Node, Value
from ..dense import Size, contiguous
from ..loops.index import index
from ..loops.ir import HALF, Reduction, Ref
from ..lowered import BufferArg, Extern
from .arguments import plan_argument
from .context import Context, View
from .exprs import FLOATS, op, wide
from .patches import as_product


def on_gpu(ctx: Context, node: Node, x: View, weight: View, bias: View | None, *rest: Any) -> Any:
    """The convolution, its bias added by what follows: torch adds it in a pass of its own. NotImplemented where nothing is gained."""
    if (product := as_product(ctx, node, x, weight, bias, *rest)) is not NotImplemented:
        return product
    laid = _all_channels_last(ctx, node, x, weight, bias, *rest)
    return _bias_apart(ctx, node, bias) if laid is NotImplemented and bias is not None else laid


def _bias_apart(ctx: Context, node: Node, bias: View) -> Any:
    """The convolution as its tensors lie."""
    [name] = node.results
    meta = ctx.metas[name or ""]
    if name is None or meta.dtype not in FLOATS or bias.dtype != meta.dtype:
        return NotImplemented
    sums = ctx.buffer(ctx.fresh(), meta)
    ctx.fixed.add(sums.buffer)
    x, weight, _, *rest = (plan_argument(ctx, a) for a in node.args)
    ctx.nodes.append(Extern(node.func.name(), (x, weight, Literal(None), *rest), {}, (sums.buffer,), None, (), ctx.origin))
    return _plus(ctx, name, meta, sums, bias)


def _plus(ctx: Context, name: str, meta: Meta, sums: View, bias: View) -> View:
    """Sums with a bias by channel."""
    return ctx.pointwise(name, meta, lambda at, ext: op("add", ctx.load(sums, at, ext), ctx.load(bias, at[1:2], ext)))


def _all_channels_last(ctx: Context, node: Node, x: View, weight: View, bias: View | None, *rest: Any) -> Any:
    """The convolution with all its tensors channels last; NotImplemented where that does not apply.

    What is seen outside keeps its layout: an operand that leaves the graph would have to be kept in both."""
    [name] = node.results
    meta = ctx.metas[name or ""]
    if name is None or not _applies(meta, x, weight) or rest[3]:
        return NotImplemented
    if in_odd_groups(weight.sizes, rest[-1]):
        return _in_rows(ctx, node, name, meta, x, weight, bias)
    if _stays_otherwise(ctx, node.args[0], x):
        return NotImplemented
    operands = [laid_channels_last(ctx, v) for v in (x, weight)]
    laid = replace(meta, strides=strides_of(meta.sizes))
    outside = name in ctx.leaving and meta.strides != laid.strides  # what follows lays it out anew
    result = name if bias is None and not outside else ctx.fresh()
    view = ctx.buffer(result, laid)
    ctx.fixed.add(result)
    args = (*operands, Literal(None), *(plan_argument(ctx, a) for a in node.args[3:]))
    ctx.nodes.append(Extern(node.func.name(), args, {}, (result,), None, (), ctx.origin))
    if bias is not None:
        return _plus(ctx, name, meta if outside else laid, view, bias)
    return ctx.pointwise(name, meta, lambda at, ext: ctx.read(view, at, ext)) if outside else view


def _in_rows(ctx: Context, node: Node, name: str, meta: Meta, x: View, weight: View, bias: View | None) -> Any:
    """The convolution with its tensors as eager has them, its result laid out anew by what follows."""
    rows = meta.contiguous()
    operands = [_laid(ctx, v, contiguous(v.sizes)) for v in (x, weight)]
    result = name if bias is None and meta.strides == rows.strides else ctx.fresh()
    view = ctx.buffer(result, rows)
    ctx.fixed.add(result)
    args = (*operands, Literal(None), *(plan_argument(ctx, a) for a in node.args[3:]))
    ctx.nodes.append(Extern(node.func.name(), args, {}, (result,), None, (), ctx.origin))
    if bias is not None:
        return _plus(ctx, name, meta, view, bias)
    return view if result == name else ctx.pointwise(name, meta, lambda at, ext: ctx.read(view, at, ext))


def backward_on_gpu(ctx: Context, node: Node, grad: View, x: View, weight: View, *rest: Any) -> Any:
    """Its gradients likewise; that of the bias is a sum beside it."""
    meta = ctx.metas[node.args[0].name]
    if (
        not _applies(meta, grad, x, weight)
        or rest[4]
        or any(_stays_otherwise(ctx, a, v) for a, v in zip(node.args, (grad, x), strict=False))
    ):
        return NotImplemented
    names = [r if r in ctx.used else None for r in node.results]
    views: list[View | None] = [None, None, None]
    for k, name in enumerate(names[:2]):
        if name is not None:
            own = ctx.metas[name]
            window = own.sizes[2:] == (1, 1)  # then the layouts are one
            views[k] = ctx.buffer(name, own if window and k == 1 else replace(own, strides=strides_of(own.sizes)))
            ctx.fixed.add(name)
    if any(names[:2]):
        operands = [laid_channels_last(ctx, v) for v in (grad, x, weight)]
        call_backward(ctx, node, operands, (names[0], names[1]))
    if names[2] is not None:
        views[2] = _summed(ctx, names[2], grad)
    return views


def call_backward(ctx: Context, node: Node, operands: Sequence[BufferArg], results: tuple[str | None, str | None]) -> None:
    """Torch's backward of a convolution, for the gradients of the images and of the weights that are wanted."""
    wanted = (*(Literal(name is not None) for name in results), Literal(False))
    args = (*operands, Literal(None), *(plan_argument(ctx, a) for a in node.args[4:10]), wanted)
    ctx.nodes.append(Extern(node.func.name(), args, {}, (*results, None), None, (), ctx.origin))


def _summed(ctx: Context, name: str, grad: View) -> View:
    dtype = wide(grad.dtype)
    n, _, h, w = grad.sizes

    def sums(outer: Any, inner: Any, ext: Any) -> Any:
        return [Reduction(("a",), "sum", ctx.load(grad, (inner[0], outer[0], *inner[1:]), ext), dtype)], [Ref("a", dtype)]

    return ctx.reduce([(name, ctx.metas[name])], [n, h, w], sums)[0]


def _applies(meta: Meta, *views: View) -> bool:
    known = all(type(n) is int for v in views for n in v.sizes) and all(len(v.sizes) == 4 for v in views)
    return known and meta.dtype in HALF and traits_of(meta.device).matrix_units and all(0 not in v.sizes for v in views)


def _stays_otherwise(ctx: Context, value: Value, view: View) -> bool:
    """Whether the operand leaves the graph in another layout."""
    return value.name in ctx.leaving and not _lies_so(ctx, view, strides_of(view.sizes))


def laid_channels_last(ctx: Context, view: View) -> BufferArg:
    """The tensor channels last: as it lies, by laying out anew what the graph computes itself, or as a copy."""
    return _laid(ctx, view, strides_of(view.sizes))


def _laid(ctx: Context, view: View, wanted: Sequence[Size]) -> BufferArg:
    """The same with other strides."""
    if _lies_so(ctx, view, wanted):
        return ctx.strided(view)
    info = ctx.buffers[view.buffer]
    if view.indices is None and info.role == "temporary" and view.buffer not in ctx.fixed:
        ctx.buffers[view.buffer] = replace(info, strides=tuple(map(index, wanted)))
        ctx.fixed.add(view.buffer)
        return BufferArg(view.buffer)
    return BufferArg(ctx.materialise(view, tuple(wanted)).buffer)


def _lies_so(ctx: Context, view: View, wanted: Sequence[Size]) -> bool:
    found = ctx.geometry(view)
    return found is not None and all(n == 1 or s.constant == w for n, s, w in zip(view.sizes, found[0], wanted, strict=True))


__all__ = ["backward_on_gpu", "call_backward", "laid_channels_last", "on_gpu"]
