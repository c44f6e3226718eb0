"""The backward of convolutions of each channel for itself on CPUs: sums over windows, as they are themselves.

The gradient of the images is a convolution of the result's gradient with the weights turned round, where windows move by one; that of the
weights is a correlation of the two. Torch's kernels for channels as they lie take ten times as long; those for channels last are slower by
more than laying out anew what lies so takes, but for large images and windows of few points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.channels_last import strides_of
from ..capture.graph import Meta, Node
from ..dense import Size, contiguous
from ..loops.index import index
from ..loops.ir import Reduction, Ref
from .backward_points import gradients_of_points, is_of_points
from .channels_last import backward_on_gpu, call_backward
from .context import Context, Extents, Indices, View
from .convolution import is_known, laid_out, products
from .creation import masked
from .exprs import const, op
from .half_products import in_float, is_slow, narrowed, widened
from .pooling import many, window
from .records import Rows

ROWS = Rows()
_FEW_TAPS = 9
"""Points of a window up to which torch's kernels for channels last are the quicker ones,"""
_MANY_ELEMENTS = 1 << 15
"""and elements of the images from which on."""


@ROWS.lowers("convolution_backward", own_memory=True)
def _convolution_backward(ctx: Context, node: Node, gradient: View, x: View, weight: View, *rest: Any) -> Any:
    if not traits_of(ctx.buffers[x.buffer].device).processor:
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
        return [
            *gradients_of_points(ctx, node, gradient, x, weight),
            _of_bias(ctx, bias, gradient) if bias in ctx.used and bias is not None else None,
        ]
    if not apart or (len(weight.sizes) == 4 and math.prod(kernel) <= _FEW_TAPS and _are_large_and_last(ctx, node)):
        return NotImplemented
    around = [d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding, strict=True)]
    if min(around) < 0:
        return NotImplemented
    views: list[View | None] = [None, None, None]
    names = [r if r in ctx.used else None for r in node.results]
    if names[0] is not None and set(stride) != {1}:
        views[0], names[0] = _of_images_by_torch(ctx, node, names[0], (gradient, x, weight)), None
    gradient = laid_out(ctx, gradient)
    if names[0] is not None:
        operands = gradient, _turned(ctx, weight), None
        meta = ctx.metas[names[0]]
        views[0] = products(ctx, names[0], meta.contiguous(), operands, (1,) * n, around, dilation, True)
    if names[1] is not None:
        views[1] = _of_weights(ctx, names[1], gradient, laid_out(ctx, x), kernel, (stride, padding, dilation))
    if names[2] is not None:
        views[2] = _of_bias(ctx, names[2], gradient)
    return views


def _are_large_and_last(ctx: Context, node: Node) -> bool:
    """Whether the gradient and the images lie channels last, in float32, as the program has them, and are many elements."""
    metas = [ctx.metas[a.name] for a in node.args[:2]]
    if any(m.dtype != "float32" or type(n) is not int for m in metas for n in m.sizes) or math.prod(metas[1].sizes) < _MANY_ELEMENTS:
        return False
    return all(tuple(m.strides) == strides_of(m.sizes) for m in metas)


def _of_images_by_torch(ctx: Context, node: Node, name: str, tensors: tuple[View, View, View]) -> View | None:
    """With steps: spread out, most of what is multiplied would be zeros, and torch's operator takes half the time."""
    meta = ctx.metas[name]
    made = ctx.buffer(name if meta.dtype == tensors[0].dtype else ctx.fresh(), replace(meta, dtype=tensors[0].dtype))
    ctx.fixed.add(made.buffer)
    operands = [ctx.strided(_promised(ctx, v, ctx.metas[a.name].strides)) for v, a in zip(tensors, node.args, strict=False)]
    call_backward(ctx, node, operands, (made.buffer, None))
    return narrowed(ctx, name, made)


def _promised(ctx: Context, view: View, strides: Sequence[Size]) -> View:
    """Laid out as capture said, which decides how torch lays out what it gives; other loops may have had it laid out anew."""
    anew = view.indices is None and [index(s) for s in ctx.buffers[view.buffer].strides] != [index(s) for s in strides]
    return ctx.materialise(view, tuple(strides)) if anew else view


def _turned(ctx: Context, weight: View) -> View:
    """Weights with the first tap last."""

    def value(at: Indices, ext: Extents) -> Any:
        return ctx.read(weight, (*at[:2], *(n - 1 - i for n, i in zip(weight.sizes[2:], map(index, at[2:]), strict=True))), ext)

    made = ctx.pointwise(None, Meta(weight.dtype, weight.sizes, contiguous(weight.sizes), ctx.buffers[weight.buffer].device), value)
    ctx.fixed.add(made.buffer)
    return made


def _of_weights(
    ctx: Context, name: str, gradient: View, x: View, kernel: Sequence[int], steps: tuple[Sequence[int], Sequence[int], Sequence[int]]
) -> View:
    def make(outer: Indices, inner: Indices, ext: Extents) -> Any:
        (channel, _, *taps), (image, *at) = outer, inner
        position, inside = window(x, (image, channel, *at), taps, *steps, gradient.sizes, kernel)
        value = masked(ctx.read(x, position, ext), inside, const(0.0, x.dtype))
        product = op("mul", ctx.read(gradient, (image, channel, *at), ext), value)
        return [Reduction(("a",), "sum", product, x.dtype)], [Ref("a", x.dtype)]

    return ctx.reduce([(name, ctx.metas[name])], (gradient.sizes[0], *gradient.sizes[2:]), make)[0]


def _of_bias(ctx: Context, name: str, gradient: View) -> View:
    def make(outer: Indices, inner: Indices, ext: Extents) -> Any:
        return [Reduction(("a",), "sum", ctx.read(gradient, (inner[0], outer[0], *inner[1:]), ext), gradient.dtype)], [
            Ref("a", gradient.dtype)
        ]

    return ctx.reduce([(name, ctx.metas[name])], (gradient.sizes[0], *gradient.sizes[2:]), make)[0]


__all__ = ["ROWS"]
