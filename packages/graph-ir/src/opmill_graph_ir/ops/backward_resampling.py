"""Gradients of resized images as gathers: each point sums over the outputs that were read from it, one dimension after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Meta, Node
from ..dense import contiguous
from ..loops.index import Index, floordiv
from ..loops.ir import Expr, Reduction, Ref
from .context import Context, View
from .creation import masked
from .exprs import FLOATS, all_of, cast, const, index_value, op, wide
from .pooling import copied, unheeded
from .records import Rows
from .resampling import Filter, cubic_weights, filters, ratio, torch_is_faster

ROWS = Rows()
Taps = Callable[[Expr], list[tuple[Expr, Expr]]]
"""From an output's position (a float) the points that it reads, as whole numbers not yet clamped, and their weights."""


@dataclass(frozen=True)
class _Line:
    """How one dimension of ``size`` points became ``out``; ``near`` and ``far`` are the first and last point that is read, counted from the
    one at or below the position."""

    size: int
    out: int
    step: float
    offset: float
    low: float | None
    near: int
    far: int

    def position(self, o: Expr) -> Expr:
        """The real position of output ``o``: ``(o + offset) * step - offset``, not below ``low``."""
        moved = op("add", o, const(self.offset, o.dtype)) if self.offset else o
        scaled = op("mul", moved, const(self.step, o.dtype))
        back = op("sub", scaled, const(self.offset, o.dtype)) if self.offset and self.low is not None else scaled
        return op("max", back, const(self.low, o.dtype)) if self.low not in (None, -torch.inf) else back

    def window(self) -> tuple[int, int]:
        """``(before, count)``: outputs that read point ``i`` are among the ``count`` from ``i * out // size - before`` on."""
        o = torch.arange(self.out, dtype=torch.float64)
        back = self.offset if self.low is not None else 0.0
        whole = torch.floor((o + self.offset) * self.step - back)
        first, last = (
            (whole + k).clamp(0, self.size - 1) for k in (self.near - 1, self.far + 1)
        )  # one more, for positions rounded otherwise
        points = torch.arange(self.size, dtype=torch.float64)
        least, most = torch.searchsorted(last, points), torch.searchsorted(first, points, right=True) - 1
        base = torch.arange(self.size) * self.out // self.size
        before = int((base - least).max().clamp(min=0))
        return before, max(int((most - base).max()) + before + 1, 1)


def _transposed(ctx: Context, name: str | None, meta: Meta, grad: View, dim: int, line: _Line, taps: Taps) -> View:
    """The gradient along ``dim``, from that of ``line.out`` outputs to that of ``line.size`` points."""
    before, count = line.window()
    dtype = wide(grad.dtype)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        i: Index = outer[dim]
        o = floordiv(i * line.out, line.size, ext) - before + inner[0]
        place = index_value(o)
        inside = [op("ge", place, const(0, "int64")), op("lt", place, const(line.out, "int64"))]
        weight: Expr | None = None
        reached: Expr | None = None
        for point, w in taps(cast(place, dtype)):
            clamped = op("min", op("max", point, const(0, "int64")), const(line.size - 1, "int64"))
            here = op("eq", clamped, index_value(i))
            mine = op("where", here, w, const(0, dtype))
            weight, reached = (
                (mine, here) if weight is None or reached is None else (op("add", weight, mine), op("logical_or", reached, here))
            )
        assert weight is not None and reached is not None
        value = masked(ctx.read(grad, (*outer[:dim], o, *outer[dim + 1 :]), ext), all_of(inside), const(0, grad.dtype))
        term = op(
            "where", reached, op("mul", cast(value, dtype), weight), const(0, dtype)
        )  # infinities and NaN stay with the points that were read
        return [Reduction(("a",), "sum", term, dtype)], [Ref("a", dtype)]

    return ctx.reduce([(name, meta)], [count], make)[0]


def _nearest_taps(line: _Line, dtype: str) -> Taps:
    return lambda o: [(cast(op("floor", line.position(o)), "int64"), const(1, o.dtype))]


def _linear_taps(line: _Line, dtype: str) -> Taps:
    def taps(o: Expr) -> list[tuple[Expr, Expr]]:
        source = line.position(o)
        low = op("min", op("floor", source), const(line.size - 1, dtype))
        weight = op("min", op("max", op("sub", source, low), const(0, dtype)), const(1, dtype))
        point = cast(low, "int64")
        return [(point, op("sub", const(1, dtype), weight)), (op("add", point, const(1, "int64")), weight)]

    return taps


def _cubic_taps(line: _Line, dtype: str) -> Taps:
    def taps(o: Expr) -> list[tuple[Expr, Expr]]:
        source = line.position(o)
        low = op("floor", source)
        weights = cubic_weights(op("sub", source, low))
        return [(op("add", cast(low, "int64"), const(j - 1, "int64")), w) for j, w in enumerate(weights)]

    return taps


def _device(ctx: Context, node: Node) -> str:
    return ctx.metas[node.results[0] or ""].device


def _resized(ctx: Context, node: Node, grad: View, lines: Sequence[_Line], taps: Callable[[_Line, str], Taps]) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if 0 in grad.sizes or 0 in meta.sizes or grad.dtype not in FLOATS:
        return NotImplemented
    if taps is not _cubic_taps and torch_is_faster(grad, meta):
        return NotImplemented
    dtype, current = wide(grad.dtype), grad
    changed = [k for k, line in enumerate(lines) if line.size != line.out or line.step != 1]
    for k in changed or [len(lines) - 1]:
        last = k == (changed or [len(lines) - 1])[-1]
        sizes = (*current.sizes[: 2 + k], lines[k].size, *current.sizes[3 + k :])
        target = meta if last else Meta(dtype, sizes, contiguous(sizes), meta.device)
        current = _transposed(ctx, node.results[0] if last else None, target, current, 2 + k, lines[k], taps(lines[k], dtype))
    return current


@ROWS.lowers(" ".join(f"upsample_nearest{n}d_backward _upsample_nearest_exact{n}d_backward" for n in (1, 2, 3)))
def _nearest(ctx: Context, node: Node, grad: View, out: Sequence[int], size: Sequence[int], *scales: Any) -> Any:
    half = 0.5 if "exact" in node.func.name() else 0.0
    given = (*scales, *(None for _ in out))[: len(out)]
    if not half and traits_of(_device(ctx, node)).processor:
        given = tuple(unheeded(n, m, s) for n, m, s in zip(size[2:], out, given, strict=True))
    lines = [_Line(n, m, ratio(n, m, s, False), half, None, 0, 0) for n, m, s in zip(size[2:], out, given, strict=True)]
    return _resized(ctx, node, grad, lines, _nearest_taps)


@ROWS.lowers("upsample_linear1d_backward upsample_bilinear2d_backward upsample_trilinear3d_backward upsample_bicubic2d_backward")
def _smooth(ctx: Context, node: Node, grad: View, out: Sequence[int], size: Sequence[int], align: bool, *scales: Any) -> Any:
    given, cubic = (*scales, *(None for _ in out))[: len(out)], "bicubic" in node.func.name()
    if cubic and list(out) == list(size[2:]):
        return ctx.pointwise(node.results[0], ctx.metas[node.results[0] or ""], lambda at, ext: ctx.read(grad, at, ext))
    if not cubic:
        given = tuple(None if copied(n, m, s, _device(ctx, node)) else s for n, m, s in zip(size[2:], out, given, strict=True))
    offset, low = (0.0 if align else 0.5), (-torch.inf if cubic else 0.0)
    near, far = (-1, 2) if cubic else (0, 1)
    lines = [_Line(n, m, ratio(n, m, s, align), offset, low, near, far) for n, m, s in zip(size[2:], out, given, strict=True)]
    return _resized(ctx, node, grad, lines, _cubic_taps if cubic else _linear_taps)


@ROWS.lowers("_upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward")
def _smoothed(ctx: Context, node: Node, grad: View, out: Sequence[int], size: Sequence[int], align: bool, *scales: Any) -> Any:
    """Each point sums over the outputs that it is part of, weighted as they did, one dimension after the other."""
    meta = ctx.metas[node.results[0] or ""]
    if 0 in grad.sizes or 0 in meta.sizes or grad.dtype not in FLOATS or torch_is_faster(grad, meta):
        return NotImplemented
    dtype, current = wide(grad.dtype), grad
    for d, by in zip((2, 3), filters(node.func.name(), size[2:], out, align, scales), strict=True):
        sizes = (*current.sizes[:d], by.size, *current.sizes[d + 1 :])
        target = meta if d == 3 else Meta(dtype, sizes, contiguous(sizes), meta.device)
        current = _unfiltered(ctx, node.results[0] if d == 3 else None, target, current, d, by)
    return current


def _unfiltered(ctx: Context, name: str | None, meta: Meta, grad: View, dim: int, by: Filter) -> View:
    dtype = wide(grad.dtype)
    line = Meta(dtype, (by.out,), (1,), meta.device)
    first, points = by.points()

    def whole(outer: Any, inner: Any, ext: Any) -> Any:
        point = floordiv(outer[0] * by.size, by.out, ext) - first + inner[0]
        return [Reduction(("a",), "sum", by.weight(outer[0], point, dtype)[1], dtype)], [Ref("a", dtype)]

    totals = ctx.reduce([(None, line)], [points], whole)[0]
    before, count = by.outputs()

    def over(outer: Any, inner: Any, ext: Any) -> Any:
        o = floordiv(outer[dim] * by.out, by.size, ext) - before + inner[0]
        there = op("logical_and", op("ge", index_value(o), const(0, "int64")), op("lt", index_value(o), const(by.out, "int64")))
        inside, weight = by.weight(o, outer[dim], dtype)
        share = op("div", weight, masked(ctx.read(totals, (o,), ext), there, const(1, dtype)))
        value = cast(masked(ctx.read(grad, (*outer[:dim], o, *outer[dim + 1 :]), ext), there, const(0, grad.dtype)), dtype)
        term = op("where", op("logical_and", there, inside), op("mul", share, value), const(0, dtype))
        return [Reduction(("a",), "sum", term, dtype)], [Ref("a", dtype)]

    return ctx.reduce([(name, meta)], [count], over)[0]
