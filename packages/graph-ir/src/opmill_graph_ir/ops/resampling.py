"""Images read between their points: at positions from a grid, by cubic interpolation, smoothed before they are made smaller."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Meta, Node
from ..loops.index import Index, floordiv, index
from ..loops.ir import Expr, Let, Reduction, Ref
from .context import FEW, Context, View
from .creation import masked
from .exprs import FLOATS, all_of, cast, const, index_value, op, wide
from .indexing import gathered
from .records import Rows

ROWS = Rows()
_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


_LARGE = 1 << 14
"""Elements from which on torch's own kernels are faster on a processor: gradients add up what they read in one pass, ten times faster than
gathers do, and smoothing has its weights in a table (gradients of cubic interpolation are not)."""


def torch_is_faster(x: View, meta: Meta) -> bool:
    """Whether an image of this size is better resized by torch's own kernel, forward or backward."""
    return traits_of(meta.device).processor and max(math.prod(x.sizes), math.prod(meta.sizes)) > _LARGE


def _c(x: Expr, value: float) -> Expr:
    return const(value, x.dtype)


def _clip(x: Expr, low: float, high: float) -> Expr:
    return op("min", op("max", x, _c(x, low)), _c(x, high))


# ---- grids -----------------------------------------------------------------------------------------------------------------


def _unnormalised(x: Expr, size: int, align: bool) -> Expr:
    """From -1..1 to positions: the centres of the corner points, or their outer edges."""
    if align:
        return op("mul", op("div", op("add", x, _c(x, 1)), _c(x, 2)), _c(x, size - 1))
    return op("div", op("sub", op("mul", op("add", x, _c(x, 1)), _c(x, size)), _c(x, 1)), _c(x, 2))


def _reflected(x: Expr, size: int, align: bool) -> Expr:
    """Mirrored at the centres or edges of the outer points until it is inside."""
    low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
    if span <= 0:
        return _c(x, 0)
    distance = op("abs", op("sub", x, _c(x, low)))
    rest = op("fmod", distance, _c(x, span))
    flips = op("floor", op("div", distance, _c(x, span)))
    even = op("eq", op("fmod", flips, _c(x, 2)), _c(x, 0))
    return op("where", even, op("add", rest, _c(x, low)), op("add", op("sub", _c(x, span), rest), _c(x, low)))


def _padded(x: Expr, size: int, padding: int, align: bool) -> Expr:
    if padding == _REFLECTION:
        x = _reflected(x, size, align)
    return x if padding == _ZEROS else _clip(x, 0, size - 1)


class _Corners:
    """Reads of an image at positions that are lets; what lies outside is zero."""

    def __init__(self, ctx: Context, x: View, lead: Sequence[Any], ext: Any) -> None:
        self.ctx, self.x, self.lead, self.ext = ctx, x, lead, ext
        self.lets: list[Let] = []

    def let(self, name: str, value: Expr) -> Ref:
        self.lets.append(Let(name, value))
        return Ref(name, value.dtype)

    def place(self, name: str, position: Expr, size: int) -> tuple[Expr, str]:
        """Whether a whole-numbered float position is inside, and the name of a position that surely is."""
        inside = op("logical_and", op("ge", position, _c(position, 0)), op("lt", position, _c(position, size)))
        self.let(name, cast(op("where", inside, position, _c(position, 0)), "int64"))
        return inside, name

    def read(self, places: Sequence[tuple[Expr, str]], dtype: str) -> Expr:
        read = self.ctx.read(self.x, (*self.lead, *(index(n) for _, n in places)), self.ext)
        return cast(masked(read, all_of([inside for inside, _ in places]), const(0, self.x.dtype)), dtype)


@ROWS.lowers("affine_grid_generator")
def _affine_grid(ctx: Context, node: Node, theta: View, size: Sequence[Any], align: bool) -> Any:
    """Where the points of an image come from: what samples there computes them on the way."""
    spaces, meta = size[2:], ctx.metas[node.results[0] or ""]
    if theta.dtype not in FLOATS or ctx.exact or any(type(n) is not int for n in spaces):
        return NotImplemented
    dtype = wide(theta.dtype)

    def value(at: Any, ext: Any) -> Any:
        row = [ctx.load(theta, (at[0], at[-1], index(k)), ext) for k in range(len(spaces) + 1)]
        places = [_evenly(i, n, align, dtype) for i, n in zip(at[1:-1], spaces, strict=True)]
        terms = [op("mul", factor, place) for factor, place in zip(row, reversed(places))]  # x is the last dimension of space
        return functools.reduce(lambda total, term: op("add", total, term), [*terms, row[-1]])

    return ctx.pointwise(node.results[0], meta, value)


def _evenly(i: Index, count: int, align: bool, dtype: str) -> Expr:
    """The ``i``-th of ``count`` places from -1 to 1: corners of an image, or the middle of its pixels."""
    if count <= 1:
        return const(0.0, dtype)
    doubled = cast(index_value(i * 2 - (count - 1)), dtype)
    return op("div", doubled, const(count - 1 if align else count, dtype))


@ROWS.lowers("grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback")
def _grid_sampler(ctx: Context, node: Node, x: View, grid: View, mode: int, padding: int, align: bool) -> Any:
    n, meta = len(x.sizes) - 2, ctx.metas[node.results[0] or ""]
    dtype = wide(x.dtype)
    if 0 in x.sizes or 0 in meta.sizes or x.dtype not in FLOATS or (mode == _BICUBIC and n != 2):
        return NotImplemented
    if ctx.on_processor(grid, FEW) and "fallback" not in node.func.name():
        return NotImplemented  # torch's kernels find a point's neighbours once for all channels: up to ten times faster
    spaces = x.sizes[2:]

    def make(at: Any, ext: Any) -> Any:
        corners = _Corners(ctx, x, at[:2], ext)
        raw = []
        for k in range(n):  # the last coordinate of the grid is the first dimension of space
            coordinate = cast(ctx.load(grid, (at[0], *at[2:], index(n - 1 - k)), ext), dtype)
            raw.append(corners.let(f"u{k}", _unnormalised(coordinate, spaces[k], align)))
        value = _AT_GRID[mode](corners, raw, spaces, padding, align, dtype)
        return value, corners.lets, []

    return gathered(ctx, node, make)


def _nearest_of_grid(corners: _Corners, raw: Sequence[Expr], spaces: Sequence[int], padding: int, align: bool, dtype: str) -> Expr:
    points = [op("round", _padded(u, n, padding, align)) for u, n in zip(raw, spaces, strict=True)]
    return corners.read([corners.place(f"g{k}", p, n) for k, (p, n) in enumerate(zip(points, spaces, strict=True))], dtype)


def _linear_of_grid(corners: _Corners, raw: Sequence[Expr], spaces: Sequence[int], padding: int, align: bool, dtype: str) -> Expr:
    sides = []
    for k, (u, n) in enumerate(zip(raw, spaces, strict=True)):
        point = corners.let(f"x{k}", _padded(u, n, padding, align))
        low = corners.let(f"f{k}", op("floor", point))
        high = op("add", low, _c(low, 1))
        weight = corners.let(f"w{k}", op("sub", point, low))
        near, far = corners.place(f"a{k}", low, n), corners.place(f"b{k}", high, n)
        sides.append(((near, op("sub", _c(weight, 1), weight)), (far, weight)))
    return _weighted(corners, sides, dtype)


def _weighted(corners: _Corners, sides: Sequence[Sequence[tuple[tuple[Expr, str], Expr]]], dtype: str) -> Expr:
    """The sum over one choice a dimension of the product of weights and the point."""
    total: Expr | None = None

    def visit(k: int, places: list[tuple[Expr, str]], weight: Expr | None) -> None:
        nonlocal total
        if k == len(sides):
            assert weight is not None
            term = op("mul", corners.read(places, dtype), weight)
            total = term if total is None else op("add", total, term)
            return
        for place, w in sides[k]:
            visit(k + 1, [*places, place], w if weight is None else op("mul", weight, w))

    visit(0, [], None)
    assert total is not None
    return total


def cubic_weights(t: Expr, a: float = -0.75) -> list[Expr]:
    """Keys' cubic convolution at distances t+1, t, 1-t, 2-t."""

    def near(x: Expr) -> Expr:
        inner = op("sub", op("mul", _c(x, a + 2), x), _c(x, a + 3))
        return op("add", op("mul", op("mul", inner, x), x), _c(x, 1))

    def far(x: Expr) -> Expr:
        inner = op("add", op("mul", op("sub", op("mul", _c(x, a), x), _c(x, 5 * a)), x), _c(x, 8 * a))
        return op("sub", op("mul", inner, x), _c(x, 4 * a))

    one = _c(t, 1)
    other = op("sub", one, t)
    return [far(op("add", t, one)), near(t), near(other), far(op("add", other, one))]


def _cubic_of_grid(corners: _Corners, raw: Sequence[Expr], spaces: Sequence[int], padding: int, align: bool, dtype: str) -> Expr:
    sides = []
    for k, (u, n) in enumerate(zip(raw, spaces, strict=True)):
        low = corners.let(f"f{k}", op("floor", u))
        t = corners.let(f"w{k}", op("sub", u, low))
        side = []
        for j, weight in enumerate(cubic_weights(t)):
            point = _padded(op("add", low, _c(low, j - 1)), n, padding, align)
            side.append((corners.place(f"g{k}_{j}", point, n), corners.let(f"c{k}_{j}", weight)))
        sides.append(side)
    return _weighted(corners, sides, dtype)


_AT_GRID: dict[int, Callable[..., Expr]] = {_BILINEAR: _linear_of_grid, _NEAREST: _nearest_of_grid, _BICUBIC: _cubic_of_grid}


# ---- cubic interpolation ---------------------------------------------------------------------------------------------------


def ratio(size: int, out: int, scale: Any, align: bool) -> float:
    """Points of the input from one output to the next."""
    if align:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1.0 / scale if scale is not None and scale > 0 else size / out


@ROWS.lowers("upsample_bicubic2d")
def _bicubic(ctx: Context, node: Node, x: View, sizes: Sequence[int], align: bool, *scales: Any) -> Any:
    dtype = wide(x.dtype)
    if 0 in x.sizes or 0 in sizes or x.dtype not in FLOATS:
        return NotImplemented
    scales = (*scales, None, None)[:2]

    def make(at: Any, ext: Any) -> Any:
        corners = _Corners(ctx, x, at[:2], ext)
        sides = []
        for k in range(2):
            size, o = x.sizes[2 + k], cast(index_value(at[2 + k]), dtype)
            step = const(ratio(size, sizes[k], scales[k], align), dtype)
            half = const(0.5, dtype)
            u = op("mul", o, step) if align else op("sub", op("mul", op("add", o, half), step), half)
            low = corners.let(f"f{k}", op("floor", u))
            t = corners.let(f"w{k}", op("sub", u, low))
            side = []
            for j, weight in enumerate(cubic_weights(t)):
                point = op("add", cast(low, "int64"), const(j - 1, "int64"))
                corners.let(f"g{k}_{j}", op("min", op("max", point, const(0, "int64")), const(size - 1, "int64")))
                side.append((f"g{k}_{j}", corners.let(f"c{k}_{j}", weight)))
            sides.append(side)
        rows: Expr | None = None
        for y, wy in sides[0]:
            row: Expr | None = None
            for z, wz in sides[1]:
                term = op("mul", cast(ctx.read(x, (*at[:2], index(y), index(z)), ext), dtype), wz)
                row = term if row is None else op("add", row, term)
            assert row is not None
            rows = op("mul", row, wy) if rows is None else op("add", rows, op("mul", row, wy))
        return rows, corners.lets, []

    return gathered(ctx, node, make)


# ---- with smoothing --------------------------------------------------------------------------------------------------------


def _triangle(x: Expr) -> Expr:
    x = op("abs", x)
    return op("where", op("lt", x, _c(x, 1)), op("sub", _c(x, 1), x), _c(x, 0))


def _cubic(x: Expr, a: float = -0.5) -> Expr:
    x = op("abs", x)
    near = op("add", op("mul", op("mul", op("sub", op("mul", _c(x, a + 2), x), _c(x, a + 3)), x), x), _c(x, 1))
    far = op("mul", op("sub", op("mul", op("add", op("mul", op("sub", x, _c(x, 5)), x), _c(x, 8)), x), _c(x, 4)), _c(x, a))
    return op("where", op("lt", x, _c(x, 1)), near, op("where", op("lt", x, _c(x, 2)), far, _c(x, 0)))


@dataclass(frozen=True)
class Filter:
    """A dimension of ``size`` points that becomes ``out`` with smoothing: ``step`` points from one output to the next."""

    kernel: Callable[[Expr], Expr]
    support: float
    size: int
    out: int
    step: float

    def spans(self) -> list[tuple[int, int]]:
        """The points that each output reads, first and last, and one more at both ends for positions that are rounded otherwise."""
        reach = self.support * max(self.step, 1.0)
        centres = [self.step * (o + 0.5) for o in range(self.out)]
        return [(math.floor(c - reach + 0.5) - 1, math.floor(c + reach + 0.5)) for c in centres]

    def points(self) -> tuple[int, int]:
        """``(before, count)``: output ``o`` reads among the ``count`` points from ``o * size // out - before`` on."""
        bases = [o * self.size // self.out for o in range(self.out)]
        before = max(0, *(b - first for b, (first, _) in zip(bases, self.spans(), strict=True)))
        return before, max(last - b for b, (_, last) in zip(bases, self.spans(), strict=True)) + before + 1

    def outputs(self) -> tuple[int, int]:
        """``(before, count)``: point ``j`` is read among the ``count`` outputs from ``j * out // size - before`` on."""
        spans, least, most = self.spans(), 0, 0
        before = after = 0
        for j in range(self.size):
            while least < self.out - 1 and spans[least][1] < j:
                least += 1
            while most < self.out - 1 and spans[most + 1][0] <= j:
                most += 1
            base = j * self.out // self.size
            before, after = max(before, base - least), max(after, most - base)
        return before, before + after + 1

    def weight(self, output: Index, point: Index, dtype: str) -> tuple[Expr, Expr]:
        """Whether ``output`` reads ``point``, and with which weight, before the weights of an output are made to sum to one."""
        reach, shrink = self.support * max(self.step, 1.0), 1.0 / max(self.step, 1.0)
        half, j = const(0.5, dtype), index_value(point)
        centre = op("mul", const(self.step, dtype), op("add", cast(index_value(output), dtype), half))
        first = op("max", cast(op("add", op("sub", centre, const(reach, dtype)), half), "int64"), const(0, "int64"))
        last = cast(op("add", op("add", centre, const(reach, dtype)), half), "int64")
        inside = op("logical_and", op("ge", j, first), op("lt", j, op("min", last, const(self.size, "int64"))))
        weight = self.kernel(op("mul", op("add", op("sub", cast(j, dtype), centre), half), const(shrink, dtype)))
        return inside, op("where", inside, weight, const(0, dtype))


def filters(name: str, sizes: Sequence[int], out: Sequence[int], align: bool, scales: Sequence[Any]) -> list[Filter]:
    """Those of an operator, by dimension of space."""
    kernel, support = (_triangle, 1.0) if "bilinear" in name else (_cubic, 2.0)
    given = (*scales, None, None)[:2]
    return [Filter(kernel, support, n, m, ratio(n, m, s, align)) for n, m, s in zip(sizes, out, given, strict=True)]


@ROWS.lowers("_upsample_bilinear2d_aa _upsample_bicubic2d_aa")
def _smoothed(ctx: Context, node: Node, x: View, sizes: Sequence[int], align: bool, *scales: Any) -> Any:
    """Each dimension in turn, the last first: a weighted mean over the support of the filter, which grows as the image shrinks."""
    meta = ctx.metas[node.results[0] or ""]
    if 0 in x.sizes or 0 in sizes or x.dtype not in FLOATS or torch_is_faster(x, meta):
        return NotImplemented
    used, current = filters(node.func.name(), x.sizes[2:], sizes, align, scales), x
    kept = traits_of(
        ctx.buffers[x.buffer].device
    ).processor  # torch's loops there leave a dimension alone whose size stays, with whatever scale
    changing = [d for d in (3, 2) if not kept or sizes[d - 2] != x.sizes[d]]
    for d in changing:
        current = _filtered(ctx, node.results[0] if d == changing[-1] else None, meta, current, d, sizes[d - 2], used[d - 2])
    return current if changing else ctx.pointwise(node.results[0], meta, lambda at, ext: ctx.load(x, at, ext))


def _filtered(ctx: Context, name: str | None, meta: Any, x: View, dim: int, out: int, by: Filter) -> View:
    dtype = wide(x.dtype)
    target = meta if name is not None else meta.contiguous((*x.sizes[:dim], out, *x.sizes[dim + 1 :]))
    if name is None:
        target = replace(target, dtype=dtype)

    before, count = by.points()

    def over(outer: Any, inner: Any, ext: Any) -> Any:
        point = floordiv(outer[dim] * by.size, out, ext) - before + inner[0]
        inside, weight = by.weight(outer[dim], point, dtype)
        value = cast(masked(ctx.read(x, (*outer[:dim], point, *outer[dim + 1 :]), ext), inside, const(0, x.dtype)), dtype)
        term = op("where", inside, op("mul", weight, value), const(0, dtype))  # an infinite value outside is none of this mean's
        sums = [Reduction(("a",), "sum", term, dtype), Reduction(("b",), "sum", weight, dtype)]
        return sums, [op("div", Ref("a", dtype), Ref("b", dtype))]

    return ctx.reduce([(name, target)], [count], over)[0]
