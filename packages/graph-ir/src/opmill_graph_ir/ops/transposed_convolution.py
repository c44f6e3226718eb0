"""Transposed convolutions on processors, as one sum of products over a window of the image.

With steps of ``s``, the results at places that leave the same remainder when divided by ``s`` (a phase) are a convolution of the image with
each ``s``-th tap: ``y[s i + a] = sum over u of x[i + u - pad] w[a + p + s (pad - u)]``, where there is such a tap. Phases that read the
same places are more rows of one sum: all of them where windows lie side by side, or where steps are of one. Results are there phase by
phase then, and whoever reads them looks for them there. Torch's operator lays images and results out anew, or spreads them out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..capture.graph import Meta
from ..dense import contiguous
from ..loops.index import Index, floordiv, index, mod
from ..loops.ir import Expr
from ..lowered import BufferArg, Extern
from .context import Context, Extents, Indices, View, view_axes
from .creation import masked
from .exprs import all_of, const, index_value, op
from .views import compose, reshape

_FEW_CHANNELS = 4
"""Channels of results up to which phases are summed together although they read different places, a tap that is not there being zero: what
is laid out serves more rows, which is worth twice the products."""


@dataclass(frozen=True)
class Direction:
    """Along lines or columns: phase ``a`` of a result reads ``taps`` places of the image from ``pad`` before its own one on. Some of the
    taps do not exist in some phases unless they are ``alike``."""

    stride: int
    padding: int
    kernel: int
    pad: int
    taps: int
    alike: bool


def direction(stride: int, padding: int, kernel: int) -> Direction:
    """The places that all phases together read."""
    reach = set()
    for a in range(stride):
        behind, first = divmod(a + padding, stride)
        reach.add((-(-(kernel - first) // stride) - 1 - behind, behind))
    pad, behind = (max(r[k] for r in reach) for k in (0, 1))
    return Direction(stride, padding, kernel, pad, pad + behind + 1, len(reach) == 1)


@dataclass(frozen=True)
class Phases:
    """A transposed convolution as a convolution: ``sizes`` [N, channels * phases, lines, columns] of what it gives, and its window."""

    directions: tuple[Direction, ...]
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(d.stride for d in self.directions)

    @property
    def taps(self) -> tuple[int, ...]:
        return tuple(d.taps for d in self.directions)

    @property
    def alike(self) -> bool:
        return all(d.alike for d in self.directions)


def phases_of(weight: View, result: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> Phases | None:
    """None where phases are left to torch: they read too different places, or there are phases without taps."""
    if set(dilation) != {1} or any(k < s for k, s in zip(weight.sizes[2:], stride, strict=True)):
        return None
    found = tuple(map(direction, stride, padding, weight.sizes[2:]))
    points = [-(-size // s) for size, s in zip(result[2:], stride, strict=True)]
    phases = Phases(found, (result[0], result[1] * math.prod(stride), *points))
    return phases if phases.alike or result[1] <= _FEW_CHANNELS else None


def factors_of(ctx: Context, weight: View, phases: Phases) -> View:
    """The weights [channels * phases, channels of images, taps], from those [channels of images, channels, window]."""
    n, (channels, outer), directions = len(phases.directions), weight.sizes[:2], phases.directions
    strides = [d.stride for d in directions]
    sizes = (outer, *strides, channels, *phases.taps)

    def value(at: Indices, ext: Extents) -> Expr:
        taps: list[Index] = []
        inside = []
        for d, a, u in zip(directions, at[1 : n + 1], at[n + 2 :], strict=True):
            tap = index(a) + (d.padding + d.stride * d.pad) - index(u) * d.stride
            taps.append(tap)
            if not d.alike:
                inside += [op("ge", index_value(tap), const(0, "int64")), op("lt", index_value(tap), const(d.kernel, "int64"))]
        return masked(ctx.read(weight, (at[n + 1], at[0], *taps), ext), all_of(inside), const(0.0, weight.dtype))

    made = ctx.pointwise(None, Meta(weight.dtype, sizes, contiguous(sizes), ctx.buffers[weight.buffer].device), value)
    ctx.fixed.add(made.buffer)
    return reshape(made, (outer * phases.count, channels, *phases.taps))


def repeated(bias: View, phases: Phases) -> View:
    """A bias for each phase."""
    (rows,) = sizes = (bias.sizes[0] * phases.count,)
    axes, extents = view_axes(sizes)
    return compose(bias, (rows,), [floordiv(axes[0], phases.count, extents)], extents)


def in_turns(whole: View, result: Sequence[int], phases: Phases) -> View:
    """The places of the result, each in its phase."""
    axes, extents = view_axes(result)
    row: Index = axes[1]
    places = []
    for place, d in zip(axes[2:], phases.directions, strict=True):
        row = row * d.stride + mod(place, d.stride, extents)
        places.append(floordiv(place, d.stride, extents))
    return compose(whole, result, (axes[0], row, *places), extents)


def of_one_place(ctx: Context, name: str | None, meta: Meta, x: View, weight: View, bias: View | None) -> View:
    """Of images of one place: a product of matrices."""
    images, (channels, *window) = x.sizes[0], weight.sizes
    columns = math.prod(window)
    x, weight = reshape(x, (images, channels)), reshape(weight, (channels, columns))
    flat = ctx.buffer(ctx.fresh(), Meta(meta.dtype, (images, columns), (columns, 1), meta.device))
    ctx.fixed.add(flat.buffer)
    factors: tuple[BufferArg, ...] = (ctx.strided(x), ctx.strided(weight))
    ctx.nodes.append(Extern("aten::mm", factors, {}, (flat.buffer,), "aten::mm.out", (), ctx.origin))
    sums = reshape(flat, meta.sizes)
    if bias is None:
        return sums
    return ctx.pointwise(name, meta, lambda at, ext: op("add", ctx.load(sums, at, ext), ctx.load(bias, at[1:2], ext)))


__all__ = ["Phases", "direction", "factors_of", "in_turns", "of_one_place", "phases_of", "repeated"]
