"""View operators as maps of positions: no node is made, later reads look elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..capture.graph import Node
from ..loops.index import ZERO, Index, floordiv, index, mod
from .context import Context, Indices, View, view_axes
from .rows import Rows

ROWS = Rows()


def compose(source: View, sizes: Sequence[int], position: Sequence[Index], extents: dict[str, int]) -> View:
    """The view of ``sizes`` whose element at (v0, v1, ...) is ``source``'s at ``position``."""
    return View(source.buffer, source.dtype, tuple(sizes), source.at(position, extents))


def _sizes(ctx: Context, node: Node, k: int = 0) -> tuple[int, ...]:
    name = node.results[k]
    assert name is not None
    return ctx.metas[name].sizes


def reshape(source: View, sizes: Sequence[int]) -> View:
    """The same elements in row-major order under other sizes."""
    axes, extents = view_axes(sizes)
    return compose(source, sizes, unflatten(axes, sizes, source.sizes, extents), extents)


def unflatten(axes: Sequence[Index], new: Sequence[int], old: Sequence[int], extents: dict[str, int]) -> Indices:
    """Positions under ``old`` sizes of positions ``axes`` under ``new`` sizes, dimensions matched in the smallest groups."""
    if 0 in new:
        return tuple(ZERO for _ in old)
    out: list[Index] = []
    i = j = 0
    while i < len(new) or j < len(old):
        group_new, group_old = [i] if i < len(new) else [], [j] if j < len(old) else []
        i, j = i + len(group_new), j + len(group_old)
        a, b = math.prod(new[k] for k in group_new), math.prod(old[k] for k in group_old)
        while a != b:
            if a < b:
                group_new.append(i)
                a, i = a * new[i], i + 1
            else:
                group_old.append(j)
                b, j = b * old[j], j + 1
        linear, step = ZERO, 1
        for k in reversed(group_new):
            linear, step = linear + axes[k] * step, step * new[k]
        rest, outer = linear, []
        for n, k in enumerate(reversed(group_old)):
            last = n == len(group_old) - 1
            outer.append(ZERO if old[k] == 1 else rest if last else mod(rest, old[k], extents))
            rest = floordiv(rest, old[k], extents)
        out += reversed(outer)
    return tuple(out)


@ROWS.lowers("view reshape _unsafe_view _reshape_alias unsqueeze squeeze squeeze.dim squeeze.dims _reshape_copy")
def _reshape(ctx: Context, node: Node, x: View, *_: Any, **__: Any) -> Any:
    return reshape(x, _sizes(ctx, node))


@ROWS.lowers("alias detach lift_fresh lift")
def _alias(ctx: Context, node: Node, x: View) -> Any:
    return x


@ROWS.lowers("permute")
def _permute(ctx: Context, node: Node, x: View, dims: Sequence[int]) -> Any:
    sizes = _sizes(ctx, node)
    axes, extents = view_axes(sizes)
    position = [ZERO] * len(sizes)
    for k, d in enumerate(dims):
        position[d] = axes[k]
    return compose(x, sizes, position, extents)


@ROWS.lowers("transpose.int")
def _transpose(ctx: Context, node: Node, x: View, a: int, b: int) -> Any:
    order = list(range(len(x.sizes)))
    if order:
        order[a], order[b] = order[b], order[a]
    return _permute(ctx, node, x, order)


@ROWS.lowers("t")
def _t(ctx: Context, node: Node, x: View) -> Any:
    return _permute(ctx, node, x, list(reversed(range(len(x.sizes)))))


@ROWS.lowers("expand")
def _expand(ctx: Context, node: Node, x: View, *_: Any, **__: Any) -> Any:
    sizes = _sizes(ctx, node)
    axes, extents = view_axes(sizes)
    lead = len(sizes) - len(x.sizes)
    return compose(x, sizes, [ZERO if n == 1 else axes[lead + k] for k, n in enumerate(x.sizes)], extents)


def sliced(x: View, dim: int, start: int, size: int, step: int = 1) -> View:
    """``size`` positions of ``dim`` from ``start`` on."""
    sizes = list(x.sizes)
    sizes[dim] = size
    axes, extents = view_axes(sizes)
    position = list(axes)
    position[dim] = position[dim] * step + start
    return compose(x, sizes, position, extents)


def slice_bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    start, end, _ = slice(start, end).indices(size)
    return start, max(end, start)


@ROWS.lowers("slice.Tensor")
def _slice(ctx: Context, node: Node, x: View, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    dim %= len(x.sizes)
    first, _ = slice_bounds(x.sizes[dim], start, end)
    return sliced(x, dim, first, _sizes(ctx, node)[dim], step)


def selected(x: View, dim: int, at: int) -> View:
    """``x`` without dimension ``dim``, taken at one position."""
    dim %= len(x.sizes)
    sizes = x.sizes[:dim] + x.sizes[dim + 1 :]
    axes, extents = view_axes(sizes)
    return compose(x, sizes, (*axes[:dim], index(at % x.sizes[dim]), *axes[dim:]), extents)


@ROWS.lowers("select.int")
def _select(ctx: Context, node: Node, x: View, dim: int, at: int) -> Any:
    return selected(x, dim, at)


@ROWS.lowers("split.Tensor split_with_sizes")
def _split(ctx: Context, node: Node, x: View, _: Any, dim: int = 0) -> Any:
    out, start = [], 0
    for k in range(len(node.results)):
        size = _sizes(ctx, node, k)[dim]
        out.append(sliced(x, dim % len(x.sizes), start, size))
        start += size
    return out


@ROWS.lowers("unbind.int")
def _unbind(ctx: Context, node: Node, x: View, dim: int = 0) -> Any:
    return [selected(x, dim, k) for k in range(len(node.results))]


@ROWS.lowers("flip")
def _flip(ctx: Context, node: Node, x: View, dims: Sequence[int]) -> Any:
    axes, extents = view_axes(x.sizes)
    flipped = {d % len(x.sizes) for d in dims} if x.sizes else set()
    position = [index(n - 1) - a if k in flipped else a for k, (a, n) in enumerate(zip(axes, x.sizes, strict=True))]
    return _own(ctx, node, compose(x, x.sizes, position, extents))


@ROWS.lowers("roll")
def _roll(ctx: Context, node: Node, x: View, shifts: Any, dims: Any = ()) -> Any:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims or 0 in x.sizes:
        return NotImplemented
    axes, extents = view_axes(x.sizes)
    position = list(axes)
    for d, s in zip(dims, shifts, strict=True):
        position[d] = mod(position[d] + (-s) % x.sizes[d], x.sizes[d], extents)
    return _own(ctx, node, compose(x, x.sizes, position, extents))


def _own(ctx: Context, node: Node, view: View) -> View:
    """A buffer of its own: the operator copies in eager."""
    return ctx.pointwise(node.results[0], ctx.metas[node.results[0] or ""], lambda at, ext: ctx.read(view, at, ext))
