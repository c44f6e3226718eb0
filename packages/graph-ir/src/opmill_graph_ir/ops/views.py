"""View operators as maps of positions: no node is made, later reads look elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

from ..capture.graph import Node
from ..dense import Size
from ..loops.index import ONE, ZERO, Index, floordiv, index, mod
from .context import Context, Extents, Indices, View, view_axes
from .records import Rows

ROWS = Rows(kind="view")
_FAR = 1 << 62
"""An end of a slice that no size reaches."""


def compose(source: View, sizes: Sequence[Size], position: Sequence[Index], extents: Extents) -> View:
    """The view of ``sizes`` whose element at (v0, v1, ...) is ``source``'s at ``position``."""
    return View(source.buffer, source.dtype, tuple(sizes), source.at(position, extents))


def _sizes(ctx: Context, node: Node, k: int = 0) -> tuple[Size, ...]:
    name = node.results[k]
    assert name is not None
    return ctx.metas[name].sizes


def reshape(source: View, sizes: Sequence[Size]) -> View:
    """The same elements in row-major order under other sizes."""
    axes, extents = view_axes(sizes)
    return compose(source, sizes, unflatten(axes, sizes, source.sizes, extents), extents)


def _groups(new: Sequence[Size], old: Sequence[Size]) -> Iterator[tuple[range, range]]:
    """The smallest runs of dimensions that certainly have equally many elements, in order."""
    i = j = 0
    while i < len(new) or j < len(old):
        ends = [(a, b) for a in range(min(i + 1, len(new)), len(new) + 1) for b in range(min(j + 1, len(old)), len(old) + 1)]
        equal = (e for e in sorted(ends, key=sum) if math.prod(new[i : e[0]]) == math.prod(old[j : e[1]]))
        a, b = next(equal, (len(new), len(old)))
        yield range(i, a), range(j, b)
        i, j = a, b


def unflatten(axes: Sequence[Index], new: Sequence[Size], old: Sequence[Size], extents: Extents) -> Indices:
    """Positions under ``old`` sizes of positions ``axes`` under ``new`` sizes, dimensions matched in the smallest groups."""
    if 0 in new:
        return tuple(ZERO for _ in old)
    out: list[Index] = []
    for group_new, group_old in _groups(new, old):
        linear, step = ZERO, ONE
        for k in reversed(group_new):
            linear, step = linear + axes[k] * step, step * new[k]
        rest, outer = linear, []
        for n, k in enumerate(reversed(group_old)):
            last = n == len(group_old) - 1
            outer.append(ZERO if old[k] == 1 else rest if last else mod(rest, old[k], extents))
            rest = floordiv(rest, old[k], extents)
        out += reversed(outer)
    return tuple(out)


def on_vectors(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Operators along a dimension take tensors without any as if they had one of size one: so does the lowering made here."""

    @wraps(lower)
    def lowered(ctx: Context, node: Node, x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, View) or x.sizes:
            return lower(ctx, node, x, *args, **kwargs)

        def as_vector(a: Any) -> Any:
            return reshape(a, (1,)) if isinstance(a, View) and not a.sizes else a

        names = {n: f"{n}_vector" for n in node.results if n is not None and not ctx.metas[n].sizes}
        ctx.metas |= {new: replace(ctx.metas[n], sizes=(1,), strides=(1,)) for n, new in names.items()}
        ctx.used |= {new for n, new in names.items() if n in ctx.used}
        inner = replace(node, results=tuple(names.get(n or "", n) for n in node.results))
        out = lower(ctx, inner, *map(as_vector, (x, *args)), **{k: as_vector(v) for k, v in kwargs.items()})
        if out is NotImplemented or not names:
            return out
        return [None if v is None else reshape(v, ()) for v in out] if isinstance(out, list) else reshape(out, ())

    return lowered


@ROWS.lowers("view reshape _reshape_alias unsqueeze squeeze squeeze.dim squeeze.dims", complex="view", moves=True)
@ROWS.lowers("_unsafe_view", complex="view", moves=True, shares=True)
@ROWS.lowers("_reshape_copy", kind="other", complex="each part", moves=True)
def _reshape(ctx: Context, node: Node, x: View, *_: Any, **__: Any) -> Any:
    return reshape(x, _sizes(ctx, node))


@ROWS.lowers("alias detach lift_fresh lift", complex="view", moves=True)
def _alias(ctx: Context, node: Node, x: View) -> Any:
    return x


def permuted(x: View, dims: Sequence[int]) -> View:
    """``x`` with its dimensions in the order ``dims``."""
    sizes = tuple(x.sizes[d] for d in dims)
    axes, extents = view_axes(sizes)
    position = [ZERO] * len(sizes)
    for k, d in enumerate(dims):
        position[d] = axes[k]
    return compose(x, sizes, position, extents)


@ROWS.lowers("permute", complex="view", moves=True)
def _permute(ctx: Context, node: Node, x: View, dims: Sequence[int]) -> Any:
    return permuted(x, dims)


@ROWS.lowers("transpose.int", complex="view", moves=True)
def _transpose(ctx: Context, node: Node, x: View, a: int, b: int) -> Any:
    order = list(range(len(x.sizes)))
    if order:
        order[a], order[b] = order[b], order[a]
    return permuted(x, order)


@ROWS.lowers("t", complex="view", moves=True)
def _t(ctx: Context, node: Node, x: View) -> Any:
    return permuted(x, list(reversed(range(len(x.sizes)))))


@ROWS.lowers("expand", complex="view", moves=True)
def _expand(ctx: Context, node: Node, x: View, *_: Any, **__: Any) -> Any:
    sizes = _sizes(ctx, node)
    axes, extents = view_axes(sizes)
    lead = len(sizes) - len(x.sizes)
    return compose(x, sizes, [ZERO if n == 1 else axes[lead + k] for k, n in enumerate(x.sizes)], extents)


def sliced(x: View, dim: int, start: Size, size: Size, step: int = 1) -> View:
    """``size`` positions of ``dim`` from ``start`` on."""
    sizes = list(x.sizes)
    sizes[dim] = size
    axes, extents = view_axes(sizes)
    position = list(axes)
    position[dim] = position[dim] * step + start
    return compose(x, sizes, position, extents)


def slice_bounds(ctx: Context, size: Size, start: Size | None, end: Size | None) -> tuple[Size, Size]:
    """Where a slice of a dimension begins and ends, as Python has it."""
    first = _clamped(ctx, 0 if start is None else start, size)
    last = size if end is None else _clamped(ctx, end, size)
    return first, last if ctx.at_least(last, first) else first


def _clamped(ctx: Context, at: Size, size: Size) -> Size:
    """A bound of a slice, which may count from the end, within ``[0, size]``."""
    if not ctx.at_least(at, 0):
        at = at + size
        return at if ctx.at_least(at, 0) else 0
    return size if (isinstance(at, int) and at >= _FAR) or not ctx.at_least(size, at) else at


@ROWS.lowers("slice.Tensor", complex="view", moves=True)
def _slice(ctx: Context, node: Node, x: View, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    dim %= len(x.sizes)
    first, _ = slice_bounds(ctx, x.sizes[dim], start, end)
    return sliced(x, dim, first, _sizes(ctx, node)[dim], step)


def selected(x: View, dim: int, at: Size) -> View:
    """``x`` without dimension ``dim``, taken at one position."""
    dim %= len(x.sizes)
    sizes = x.sizes[:dim] + x.sizes[dim + 1 :]
    axes, extents = view_axes(sizes)
    if isinstance(at, int) and at < 0:
        at = at + x.sizes[dim]
    return compose(x, sizes, (*axes[:dim], index(at), *axes[dim:]), extents)


@ROWS.lowers("select.int", complex="view", moves=True)
def _select(ctx: Context, node: Node, x: View, dim: int, at: Size) -> Any:
    return selected(x, dim, at if ctx.at_least(at, 0) else at + x.sizes[dim])


@ROWS.lowers("split.Tensor split_with_sizes", complex="view", moves=True)
def _split(ctx: Context, node: Node, x: View, _: Any, dim: int = 0) -> Any:
    out: list[View] = []
    start: Size = 0
    for k in range(len(node.results)):
        size = _sizes(ctx, node, k)[dim]
        out.append(sliced(x, dim % len(x.sizes), start, size))
        start = start + size
    return out


@ROWS.lowers("unbind.int", complex="view", moves=True)
def _unbind(ctx: Context, node: Node, x: View, dim: int = 0) -> Any:
    return [selected(x, dim, k) for k in range(len(node.results))]


@ROWS.lowers("flip", kind="other", complex="each part", moves=True)
def _flip(ctx: Context, node: Node, x: View, dims: Sequence[int]) -> Any:
    axes, extents = view_axes(x.sizes)
    flipped = {d % len(x.sizes) for d in dims} if x.sizes else set()
    position = [index(n - 1) - a if k in flipped else a for k, (a, n) in enumerate(zip(axes, x.sizes, strict=True))]
    return _own(ctx, node, compose(x, x.sizes, position, extents))


@ROWS.lowers("rot90", kind="other", complex="each part", moves=True)
def _rot90(ctx: Context, node: Node, x: View, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    axes, extents = view_axes(_sizes(ctx, node))
    a, b = (d % len(x.sizes) for d in dims)
    position = list(axes)
    last = {d: index(x.sizes[d] - 1) for d in (a, b)}
    if k % 4 == 1:
        position[a], position[b] = axes[b], last[b] - axes[a]
    elif k % 4 == 2:
        position[a], position[b] = last[a] - axes[a], last[b] - axes[b]
    elif k % 4 == 3:
        position[a], position[b] = last[a] - axes[b], axes[a]
    return _own(ctx, node, compose(x, _sizes(ctx, node), position, extents))


@ROWS.lowers("roll", kind="other", complex="each part", moves=True)
def _roll(ctx: Context, node: Node, x: View, shifts: Any, dims: Any = ()) -> Any:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if 0 in x.sizes:
        return NotImplemented
    if not dims:  # as if it were flat
        flat = reshape(x, (math.prod(x.sizes),))
        axes, extents = view_axes(flat.sizes)
        position = [mod(axes[0] + (-sum(shifts)) % flat.sizes[0], flat.sizes[0], extents)]
        return _own(ctx, node, reshape(compose(flat, flat.sizes, position, extents), x.sizes))
    axes, extents = view_axes(x.sizes)
    position = list(axes)
    for d, s in zip(dims, shifts, strict=True):
        position[d] = mod(position[d] + (-s) % x.sizes[d], x.sizes[d], extents)
    return _own(ctx, node, compose(x, x.sizes, position, extents))


def _own(ctx: Context, node: Node, view: View) -> View:
    """A buffer of its own: the operator copies in eager."""
    return ctx.pointwise(node.results[0], ctx.metas[node.results[0] or ""], lambda at, ext: ctx.read(view, at, ext))
