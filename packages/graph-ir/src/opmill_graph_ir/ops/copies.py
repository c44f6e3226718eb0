"""Operators that are a view and a copy of it, strided views, diagonals, padding by reflection, unfolding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..capture.graph import Node
from ..loops.index import ZERO, Index, floordiv, index, mod
from ..loops.ir import Expr, Let
from .context import FEW, Context, View, view_axes
from .creation import masked
from .exprs import all_of, const, index_value, op
from .indexing import gathered
from .records import Rows
from .views import ROWS as VIEWS
from .views import compose, reshape

ROWS = Rows()
_SIDE_BY_SIDE = 16
"""Elements that are read together where they lie side by side."""


def _own(ctx: Context, name: str | None, view: View) -> View | None:
    if name is None:
        return None
    return ctx.pointwise(name, ctx.metas[name], lambda at, ext: ctx.read(view, at, ext))


def _copy_of(name: str) -> Callable[..., Any]:
    view = (VIEWS.get(f"aten::{name}") or ROWS[f"aten::{name}"]).lower
    assert view is not None

    def lower(ctx: Context, node: Node, *args: Any, **kwargs: Any) -> Any:
        out = view(ctx, node, *args, **kwargs)
        if out is NotImplemented:
            return out
        if isinstance(out, list):
            return [_own(ctx, n, v) for n, v in zip(node.results, out, strict=True)]
        return _own(ctx, node.results[0], out)

    return lower


@ROWS.lowers("diagonal", kind="view", complex="view", moves=True)
def _diagonal(ctx: Context, node: Node, x: View, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    sizes = ctx.metas[node.results[0] or ""].sizes
    return diagonal(x, sizes, offset, dim1, dim2)


def diagonal(x: View, sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> View:
    """The diagonal of two dimensions, which becomes the last."""
    dim1, dim2 = dim1 % len(x.sizes), dim2 % len(x.sizes)
    axes, extents = view_axes(sizes)
    rest = list(axes[:-1])
    position: list[Index] = []
    for d in range(len(x.sizes)):
        shift = max(-offset, 0) if d == dim1 else max(offset, 0)
        position.append(axes[-1] + shift if d in (dim1, dim2) else rest.pop(0))
    return compose(x, sizes, position, extents)


@ROWS.lowers("unfold", kind="view", complex="view", moves=True)
def _unfold(ctx: Context, node: Node, x: View, dim: int, size: int, step: int) -> Any:
    sizes = ctx.metas[node.results[0] or ""].sizes
    if not x.sizes:
        return reshape(x, sizes)
    axes, extents = view_axes(sizes)
    dim %= len(x.sizes)
    position = list(axes[:-1])
    position[dim] = axes[dim] * step + axes[-1]
    return compose(x, sizes, position, extents)


for _name, _copy in {
    "diagonal": "diagonal_copy", "unfold": "unfold_copy", "permute": "permute_copy", "expand": "expand_copy", "squeeze": "squeeze_copy",
    "squeeze.dim": "squeeze_copy.dim", "squeeze.dims": "squeeze_copy.dims", "t": "t_copy", "transpose.int": "transpose_copy.int",
    "unbind.int": "unbind_copy.int", "unsqueeze": "unsqueeze_copy", "view": "view_copy", "alias": "alias_copy", "detach": "detach_copy",
    "slice.Tensor": "slice_copy.Tensor", "select.int": "select_copy.int", "split.Tensor": "split_copy.Tensor unsafe_split.Tensor",
    "split_with_sizes": "split_with_sizes_copy unsafe_split_with_sizes",
}.items():  # fmt: skip
    ROWS.lowers(_copy, complex="each part", moves=True)(_copy_of(_name))


@ROWS.lowers("pixel_shuffle", complex="each part")
def _pixel_shuffle(ctx: Context, node: Node, x: View, factor: int) -> Any:
    *lead, c, h, w = x.sizes
    split = reshape(x, (*lead, c // factor**2, factor, factor, h, w))
    return _own(
        ctx, node.results[0], reshape(_permuted(split, len(lead), (0, 3, 1, 4, 2)), (*lead, c // factor**2, h * factor, w * factor))
    )


@ROWS.lowers("pixel_unshuffle", complex="each part")
def _pixel_unshuffle(ctx: Context, node: Node, x: View, factor: int) -> Any:
    *lead, c, h, w = x.sizes
    split = reshape(x, (*lead, c, h // factor, factor, w // factor, factor))
    return _own(
        ctx, node.results[0], reshape(_permuted(split, len(lead), (0, 2, 4, 1, 3)), (*lead, c * factor**2, h // factor, w // factor))
    )


@ROWS.lowers("channel_shuffle native_channel_shuffle", complex="each part")
def _channel_shuffle(ctx: Context, node: Node, x: View, groups: int) -> Any:
    n, c, *rest = x.sizes
    split = reshape(x, (n, groups, c // groups, *rest))
    order = (0, 2, 1, *range(3, 3 + len(rest)))
    return _own(ctx, node.results[0], reshape(_permuted(split, 0, order), x.sizes))


def _permuted(x: View, lead: int, order: Sequence[int]) -> View:
    """``x`` with the dimensions after ``lead`` reordered."""
    dims = [*range(lead), *(lead + d for d in order)]
    sizes = [x.sizes[d] for d in dims]
    axes, extents = view_axes(sizes)
    position: list[Index] = [ZERO] * len(dims)
    for k, d in enumerate(dims):
        position[d] = axes[k]
    return compose(x, sizes, position, extents)


_MOST_IN_32_BITS = 1 << 30


@ROWS.lowers("diag_embed", complex="each part")
def _diag_embed(ctx: Context, node: Node, x: View, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if 0 in x.sizes:
        return NotImplemented
    dim1, dim2 = dim1 % len(meta.sizes), dim2 % len(meta.sizes)
    small = type(meta.sizes[dim1]) is int and meta.sizes[dim1] < _MOST_IN_32_BITS and ctx.on_processor(x, 0)
    number = "int32" if small else "int64"  # vectors of smaller numbers have twice the lanes

    def value(at: Any, ext: Any) -> Expr:
        a, b = at[dim1], at[dim2]
        rest = [p for d, p in enumerate(at) if d not in (dim1, dim2)]
        along = a if offset >= 0 else b
        inside = op("lt", index_value(along), const(x.sizes[-1], "int64")) if offset else None
        read = masked(ctx.read(x, (*rest, along), ext), inside, const(0, x.dtype))
        return op("where", op("eq", index_value(a + offset, number), index_value(b, number)), read, const(0, x.dtype))

    return ctx.pointwise(node.results[0], meta, value)


@ROWS.lowers("diagonal_scatter", complex="each part")
def _diagonal_scatter(ctx: Context, node: Node, x: View, src: View, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if 0 in x.sizes or 0 in src.sizes:
        return NotImplemented
    dim1, dim2 = dim1 % len(meta.sizes), dim2 % len(meta.sizes)

    def value(at: Any, ext: Any) -> Expr:
        a, b = at[dim1], at[dim2]
        rest = [p for d, p in enumerate(at) if d not in (dim1, dim2)]
        inside = op("eq", index_value(a + offset), index_value(b))
        new = masked(ctx.read(src, (*rest, a if offset >= 0 else b), ext), inside, const(0, src.dtype))
        return op("where", inside, new, ctx.read(x, at, ext))

    return ctx.pointwise(node.results[0], meta, value)


@ROWS.lowers(
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d", complex="each part"
)
def _pad(ctx: Context, node: Node, x: View, pad: Sequence[int]) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if 0 in x.sizes or 0 in meta.sizes or ctx.on_processor(x, FEW):
        return NotImplemented  # torch's kernels for processors copy whole lines: three times as fast as reading each element's place
    reflect = "reflection" in node.func.name()

    def clamp_to(a: Expr, low: int, high: int) -> Expr:
        return op("min", op("max", a, const(low, "int64")), const(high, "int64"))

    lets: list[Let] = []

    def value(at: Any, ext: Any) -> Expr:
        position = list(at)
        for k in range(len(pad) // 2):
            d = len(x.sizes) - 1 - k
            n = x.sizes[d]
            raw = index_value(at[d] - pad[2 * k])
            if reflect:
                raw = op("abs", raw)
                raw = op("sub", const(n - 1, "int64"), op("abs", op("sub", const(n - 1, "int64"), raw)))
            else:
                raw = clamp_to(raw, 0, n - 1)
            lets.append(Let(f"q{d}", raw))
            position[d] = index(f"q{d}")
        return ctx.read(x, position, ext)

    return gathered(ctx, node, lambda at, ext: (value(at, ext), lets, []))


@ROWS.lowers("im2col", complex="each part")
def _im2col(ctx: Context, node: Node, x: View, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    batched = len(x.sizes) == 4
    if 0 in x.sizes or 0 in meta.sizes:
        return NotImplemented
    kernel, dilation, padding, stride = (tuple(v) * (2 // len(v)) for v in (kernel, dilation, padding, stride))
    h, w = x.sizes[-2:]
    across = (w + 2 * padding[1] - dilation[1] * (kernel[1] - 1) - 1) // stride[1] + 1
    if type(across) is int and across % _SIDE_BY_SIDE and stride[1] > 1 and ctx.on_processor(x, FEW):
        return NotImplemented  # vectors would go over the ends of lines, and be put together of single elements

    def value(at: Any, ext: Any) -> Expr:
        block, place = at[-2], at[-1]
        c = floordiv(block, math.prod(kernel), ext)
        ky, kx = mod(floordiv(block, kernel[1], ext), kernel[0], ext), mod(block, kernel[1], ext)
        y = floordiv(place, across, ext) * stride[0] + ky * dilation[0] - padding[0]
        z = mod(place, across, ext) * stride[1] + kx * dilation[1] - padding[1]
        inside = [
            op(o, index_value(i), const(b, "int64"))
            for i, n, p in ((y, h, padding[0]), (z, w, padding[1]))
            if p
            for o, b in (("ge", 0), ("lt", n))
        ]
        return masked(ctx.read(x, (*at[:1], c, y, z) if batched else (c, y, z), ext), all_of(inside), const(0, x.dtype))

    return ctx.pointwise(node.results[0], meta, value)
