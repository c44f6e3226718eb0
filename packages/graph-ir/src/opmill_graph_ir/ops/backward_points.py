"""Gradients of convolutions of single points (1x1, without steps or padding) on CPUs: products of matrices, images as they lie.

Torch's operator lays images and results out anew, and back; the products alone take half to nine tenths of its time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..capture.graph import Meta, Node
from ..dense import contiguous
from ..loops.index import ZERO
from ..lowered import Extern
from .arguments import plan_argument
from .context import Context, View, view_axes
from .half_products import narrowed
from .views import compose, permuted, reshape, selected

_MOST = 64
"""Images, beyond which products of one after the other are too many calls."""
_BESIDE = (0, 2, 1)
"""The order of dimensions in which channels lie side by side."""


def is_of_points(x: View, weight: View, windows: Sequence[Sequence[int]], groups: int) -> bool:
    """``windows``: steps, padding and distances of taps."""
    stride, padding, _ = windows
    return (
        groups == 1
        and math.prod(weight.sizes[2:]) == 1
        and set(stride) == {1}
        and set(padding) == {0}
        and all(type(n) is int for n in x.sizes)
        and x.sizes[0] <= _MOST
    )


def gradients_of_points(ctx: Context, node: Node, gradient: View, x: View, weight: View) -> tuple[View | None, View | None]:
    """Those of the images and of the weights, as far as they are wanted."""
    names = [r if r in ctx.used else None for r in node.results]
    images, inside, outside, points = x.sizes[0], x.sizes[1], gradient.sizes[1], math.prod(x.sizes[2:])
    given, lines = reshape(gradient, (images, outside, points)), reshape(x, (images, inside, points))
    of_images = None if names[0] is None else _of_images(ctx, names[0], given, weight, (images, inside, outside))
    return of_images, None if names[1] is None else _of_weights(ctx, names[1], given, lines, (inside, outside))


def _of_images(ctx: Context, name: str, gradient: View, weight: View, sizes: tuple[int, int, int]) -> View | None:
    """Laid out as eager does: what reads it may sum over channels that lie side by side."""
    meta, points, kernel = ctx.metas[name], gradient.sizes[2], [ZERO] * (len(weight.sizes) - 2)
    images, inside, _ = sizes
    (_, row, column), extents = view_axes(sizes)
    turned = compose(weight, sizes, (column, row, *kernel), extents)  # the same for each image
    beside = meta.strides[1] == 1
    left, right, shape = (
        (permuted(gradient, _BESIDE), permuted(turned, _BESIDE), (images, points, inside))
        if beside
        else (turned, gradient, (images, inside, points))
    )
    made = ctx.buffer(ctx.fresh(), Meta(gradient.dtype, shape, contiguous(shape), meta.device))
    ctx.fixed.add(made.buffer)
    ctx.nodes.append(Extern("aten::bmm", (ctx.strided(left), ctx.strided(right)), {}, (made.buffer,), "aten::bmm.out", (), ctx.origin))
    return narrowed(ctx, name, reshape(permuted(made, _BESIDE) if beside else made, meta.sizes))


def _of_weights(ctx: Context, name: str, gradient: View, x: View, sizes: tuple[int, int]) -> View | None:
    """One image after the other is added."""
    meta = ctx.metas[name]
    made = ctx.allocated(name if meta.dtype == x.dtype else None, replace(meta, dtype=x.dtype))
    inside, outside = sizes
    whole = reshape(made, (outside, inside))
    for k in range(x.sizes[0]):
        _add(ctx, whole, selected(gradient, 0, k), permuted(selected(x, 0, k), (1, 0)), int(k > 0))
    return narrowed(ctx, name, made)


def _add(ctx: Context, into: View, left: View, right: View, beta: int) -> None:
    """``into`` = ``beta * into + left @ right``; with zero, what is there is not read."""
    operands: list[Any] = [ctx.strided(v) for v in (into, left, right)]
    ctx.nodes.append(Extern("aten::addmm_", tuple(operands), {"beta": plan_argument(ctx, beta)}, (None,), None, (into.buffer,), ctx.origin))


__all__ = ["gradients_of_points", "is_of_points"]
