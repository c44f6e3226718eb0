"""The backward of convolutions of each channel for itself on CPUs: sums over windows, as they are themselves.

The gradient of the images is a convolution of the result's gradient, spread out by the stride, with the weights turned round; that of the weights
is a correlation of the two. Torch's kernels for channels as they lie take ten times as long; those for channels last are slower by more than laying out anew what
lies so takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..capture.graph import Meta, Node
from ..loops.index import floordiv, index, mod
from ..loops.ir import Reduction, Ref
from .backward_points import gradients_of_points, is_of_points
from .channels_last import backward_on_gpu
from .context import Context, Extents, Indices, View, contiguous
from .convolution import is_known, laid_out, products
from .creation import masked
from .exprs import all_of, const, index_value, op
from .half_products import in_float, is_slow, widened
from .pooling import many, window
from .rows import Rows

ROWS = Rows()


@ROWS.lowers("convolution_backward")
def _convolution_backward(ctx: Context, node: Node, gradient: View, x: View, weight: View, *rest: Any) -> Any:
    if ctx.buffers[x.buffer].device != "cpu":
        return backward_on_gpu(ctx, node, gradient, x, weight, *rest)
    if is_slow(ctx, x):
        made = _convolution_backward(ctx, node, *(widened(ctx, a) for a in node.args[:3]), *rest)
        return in_float(ctx, node) if made is NotImplemented else made
    _, stride, padding, dilation, transposed, _, groups, _ = rest
    channels, kernel, n = weight.sizes[0], weight.sizes[2:], len(x.sizes) - 2
    apart = n in (1, 2) and groups == channels == x.sizes[1] == gradient.sizes[1] and weight.sizes[1] == 1 and channels >= 4
    if transposed or not is_known(ctx, x, weight) or not is_known(ctx, gradient, weight):
        return NotImplemented
    stride, padding, dilation = many(stride, n), many(padding, n), many(dilation, n)
    bias = node.results[2]
    if not ctx.exact and is_of_points(x, weight, (stride, padding, dilation), groups):
        return [*gradients_of_points(ctx, node, gradient, x, weight), _of_bias(ctx, bias, gradient) if bias in ctx.used and bias is not None else None]
    if not apart:
        return NotImplemented
    around = [d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding, strict=True)]
    if min(around) < 0:
        return NotImplemented
    views: list[View | None] = [None, None, None]
    names = [r if r in ctx.used else None for r in node.results]
    gradient = laid_out(ctx, gradient)
    if names[0] is not None:
        operands = _spread(ctx, gradient, stride), _turned(ctx, weight), None
        meta = ctx.metas[names[0]]
        views[0] = products(ctx, names[0], Meta(meta.dtype, meta.sizes, contiguous(meta.sizes), meta.device), operands, (1,) * n, around, dilation, True)
    if names[1] is not None:
        views[1] = _of_weights(ctx, names[1], gradient, laid_out(ctx, x), kernel, (stride, padding, dilation))
    if names[2] is not None:
        views[2] = _of_bias(ctx, names[2], gradient)
    return views


def _spread(ctx: Context, view: View, stride: Sequence[int]) -> View:
    """An image with zeros between its elements."""
    if set(stride) == {1}:
        return view
    sizes = (*view.sizes[:2], *((n - 1) * s + 1 for n, s in zip(view.sizes[2:], stride, strict=True)))

    def value(at: Indices, ext: Extents) -> Any:
        here = [(mod(i, s, ext), floordiv(i, s, ext)) for i, s in zip(at[2:], stride, strict=True)]
        there = all_of([op("eq", index_value(rest), const(0, "int64")) for rest, _ in here if rest.terms])
        return masked(ctx.read(view, (*at[:2], *(i for _, i in here)), ext), there, const(0.0, view.dtype))

    made = ctx.pointwise(None, Meta(view.dtype, sizes, contiguous(sizes), "cpu"), value)
    ctx.fixed.add(made.buffer)
    return made


def _turned(ctx: Context, weight: View) -> View:
    """Weights with the first tap last."""

    def value(at: Indices, ext: Extents) -> Any:
        return ctx.read(weight, (*at[:2], *(n - 1 - i for n, i in zip(weight.sizes[2:], map(index, at[2:]), strict=True))), ext)

    made = ctx.pointwise(None, Meta(weight.dtype, weight.sizes, contiguous(weight.sizes), "cpu"), value)
    ctx.fixed.add(made.buffer)
    return made


def _of_weights(ctx: Context, name: str, gradient: View, x: View, kernel: Sequence[int], steps: tuple[Sequence[int], Sequence[int], Sequence[int]]) -> View:
    def make(outer: Indices, inner: Indices, ext: Extents) -> Any:
        (channel, _, *taps), (image, *at) = outer, inner
        position, inside = window(x, (image, channel, *at), taps, *steps, gradient.sizes, kernel)
        value = masked(ctx.read(x, position, ext), inside, const(0.0, x.dtype))
        product = op("mul", ctx.read(gradient, (image, channel, *at), ext), value)
        return [Reduction(("a",), "sum", product, x.dtype)], [Ref("a", x.dtype)]

    return ctx.reduce([(name, ctx.metas[name])], (gradient.sizes[0], *gradient.sizes[2:]), make)[0]


def _of_bias(ctx: Context, name: str, gradient: View) -> View:
    def make(outer: Indices, inner: Indices, ext: Extents) -> Any:
        return [Reduction(("a",), "sum", ctx.read(gradient, (inner[0], outer[0], *inner[1:]), ext), gradient.dtype)], [Ref("a", gradient.dtype)]

    return ctx.reduce([(name, ctx.metas[name])], (gradient.sizes[0], *gradient.sizes[2:]), make)[0]


__all__ = ["ROWS"]
