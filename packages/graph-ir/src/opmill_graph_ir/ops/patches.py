"""Convolutions whose windows lie side by side, of images of few channels, as products: the first layer of vision transformers. cuDNN has
kernels for eight channels and more, and fills up what has fewer; cut into patches such an image is a matrix, and a pass over it is all that
it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..capture.channels_last import strides_of
from ..capture.graph import Meta, Node
from ..dense import contiguous
from ..loops.index import index
from ..loops.ir import HALF
from ..lowered import BufferArg, Extern
from .context import Context, View
from .exprs import op
from .pooling import many

_CHANNELS = 8
_DEEPEST = 1 << 14
"""Elements of a window beyond which cutting is dearer than filling up."""


def as_product(
    ctx: Context,
    node: Node,
    x: View,
    weight: View,
    bias: View | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    """The convolution as a product; NotImplemented where it is none, or nothing is gained."""
    [name] = node.results
    meta, n = ctx.metas[name or ""], len(x.sizes) - 2
    known = all(type(s) is int and s > 0 for v in (x, weight) for s in v.sizes)
    if (
        name is None
        or not known
        or n < 2
        or transposed
        or groups != 1
        or ctx.exact
        or not meta.dtype == x.dtype == weight.dtype
        or meta.dtype not in HALF
    ):
        return NotImplemented
    window: Sequence[int] = weight.sizes[2:]
    apart = list(many(stride, n)) == list(window) and not any(many(padding, n)) and set(many(dilation, n)) == {1}
    whole = not any(size % k for size, k in zip(x.sizes[2:], window, strict=True))
    if not apart or not whole or x.sizes[1] >= _CHANNELS or not 1 < math.prod(weight.sizes[1:]) <= _DEEPEST:
        return NotImplemented
    product = _product(ctx, meta, _cut(ctx, x, window, meta), weight)
    laid = replace(meta, strides=strides_of(meta.sizes)) if n == 2 and name not in ctx.leaving else meta

    def value(at: Any, ext: Any) -> Any:
        row = at[0]
        for place, extent in zip(at[2:], meta.sizes[2:], strict=True):
            row = row * extent + place
        y = ctx.load(product, (row, at[1]), ext)
        return y if bias is None else op("add", y, ctx.load(bias, at[1:2], ext))

    return ctx.pointwise(name, laid, value)


def _cut(ctx: Context, x: View, window: Sequence[int], meta: Meta) -> View:
    """The patches of an image: [N, places of windows..., C, window...]."""
    n = len(window)
    sizes = (x.sizes[0], *meta.sizes[2:], x.sizes[1], *window)

    def value(at: Any, ext: Any) -> Any:
        image, places, channel, taps = at[0], at[1 : n + 1], at[n + 1], at[n + 2 :]
        return ctx.read(x, (image, channel, *(p * k + t for p, k, t in zip(places, window, taps, strict=True))), ext)

    patches = ctx.pointwise(None, Meta(x.dtype, sizes, contiguous(sizes), meta.device), value)
    ctx.fixed.add(patches.buffer)
    return patches


def _product(ctx: Context, meta: Meta, patches: View, weight: View) -> View:
    """[N * places of windows, outer channels]."""
    outer, depth = weight.sizes[0], math.prod(weight.sizes[1:])
    rows = meta.sizes[0] * math.prod(meta.sizes[2:])
    lies = ctx.geometry(weight)
    dense = lies is not None and [s.constant for s in lies[0]] == list(contiguous(weight.sizes))
    factors = ctx.strided(weight if dense else ctx.materialise(weight))
    first = BufferArg(patches.buffer, (index(rows), index(depth)), (index(depth), index(1)), index(0))
    second = BufferArg(factors.buffer, (index(depth), index(outer)), (index(1), index(depth)), factors.offset or index(0))
    flat = ctx.buffer(ctx.fresh(), Meta(meta.dtype, (rows, outer), (outer, 1), meta.device))
    ctx.fixed.add(flat.buffer)
    ctx.nodes.append(Extern("aten::mm", (first, second), {}, (flat.buffer,), "aten::mm.out", (), ctx.origin))
    return flat


__all__ = ["as_product"]
