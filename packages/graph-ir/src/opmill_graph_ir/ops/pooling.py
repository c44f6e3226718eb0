"""Pooling and resizing of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Meta, Node
from ..loops.index import Index, floordiv, index
from ..loops.ir import Expr, Let, Reduction, Ref
from .context import Context, View
from .creation import masked
from .exprs import FLOATS, all_of, cast, const, index_value, known_order, op, wide
from .indexing import gathered
from .records import Rows

ROWS = Rows()
_LARGE = 1 << 14
"""Elements from which on resized images are made faster by torch's own kernels for processors."""


def many(value: Any, n: int) -> tuple[int, ...]:
    """An argument of one number for all ``n`` dimensions, or of one for each, as one for each."""
    return tuple(value) * (n // len(value))


def window(
    x: View, outer: Sequence[Index], inner: Sequence[Index], stride: Any, padding: Any, dilation: Any, sizes: Any, kernel: Any
) -> tuple[list[Index], Expr | None]:
    """The position in ``x`` of an element of a window, and whether it is inside."""
    n = len(inner)
    lead = len(x.sizes) - n
    position, inside = list(outer[:lead]), []
    for k in range(n):
        at = outer[lead + k] * stride[k] + inner[k] * dilation[k] - padding[k]
        size = x.sizes[lead + k]
        last = (sizes[lead + k] - 1) * stride[k] + (kernel[k] - 1) * dilation[k] - padding[k]
        if padding[k]:
            inside.append(op("ge", index_value(at), const(0, "int64")))
        if not known_order(last, size - 1):
            inside.append(op("lt", index_value(at), const(size, "int64")))
        position.append(at)
    return position, all_of(inside)


_HALF_A_VECTOR, _MOST_OF_A_VECTOR = 8, 14


def are_narrow(ctx: Context, x: View, meta: Meta, kernel: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether pooling in three dimensions on a processor makes rows that are short for vectors, of elements that lie apart: torch's
    operator takes half the time. Windows that share elements read each more than once, and pay from somewhat longer rows on."""
    if len(kernel) != 3 or stride[-1] == 1 or not ctx.on_processor(x, 0):
        return False
    shares = any(k > t for k, t in zip(kernel, stride, strict=True))
    return known_order(_MOST_OF_A_VECTOR if shares else _HALF_A_VECTOR, meta.sizes[-1]) is False


@ROWS.lowers("avg_pool2d", any_layout=True, gradient="avg_pool2d_backward")
@ROWS.lowers("avg_pool3d", gradient="avg_pool3d_backward")
def _avg_pool(
    ctx: Context,
    node: Node,
    x: View,
    kernel: Any,
    stride: Any = (),
    padding: Any = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Any:
    n = 2 if "2d" in node.func.name() else 3
    name, meta = node.results[0], ctx.metas[node.results[0] or ""]
    kernel, padding = many(kernel, n), many(padding, n)
    stride = many(stride, n) if stride else kernel
    if x.dtype not in FLOATS or 0 in x.sizes or 0 in meta.sizes:
        return NotImplemented
    if node.func.name().startswith("aten::avg") and are_narrow(ctx, x, meta, kernel, stride):
        return NotImplemented  # adaptive pooling asks eager for the ends of each window: there it is the slower one
    dtype, ones = wide(x.dtype), (1,) * n

    def count(outer: Any) -> Expr:
        total: Expr | None = None
        for k in range(n):
            d = len(x.sizes) - n + k
            start = op("sub", op("mul", index_value(outer[d]), const(stride[k], "int64")), const(padding[k], "int64"))
            end = op("min", op("add", start, const(kernel[k], "int64")), const(x.sizes[d] + padding[k], "int64"))
            if not count_include_pad:
                start, end = op("max", start, const(0, "int64")), op("min", end, const(x.sizes[d], "int64"))
            span = op("sub", end, start)
            total = span if total is None else op("mul", total, span)
        assert total is not None
        return cast(total, dtype)

    whole = not any(padding) and all(
        known_order((m - 1) * s + k, size) for m, s, k, size in zip(meta.sizes[-n:], stride, kernel, x.sizes[-n:], strict=True)
    )

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        position, inside = window(x, outer, inner, stride, padding, ones, meta.sizes, kernel)
        value = cast(masked(ctx.read(x, position, ext), inside, const(0, x.dtype)), dtype)
        by = const(divisor_override or math.prod(kernel), dtype) if divisor_override or whole else count(outer)
        return [Reduction(("a",), "sum", value, dtype)], [op("div", Ref("a", dtype), by)]

    return ctx.reduce([(name, meta)], kernel, make)[0]


@ROWS.lowers("_adaptive_avg_pool2d _adaptive_avg_pool3d")
def _adaptive(ctx: Context, node: Node, x: View, sizes: Sequence[int]) -> Any:
    n = len(sizes)
    space = x.sizes[-n:]
    if 0 in x.sizes or 0 in sizes:
        return NotImplemented
    if all(s % o == 0 for s, o in zip(space, sizes, strict=True)):
        return _avg_pool(ctx, node, x, tuple(s // o for s, o in zip(space, sizes, strict=True)))
    name, meta = node.results[0], ctx.metas[node.results[0] or ""]
    if x.dtype not in FLOATS:
        return NotImplemented
    dtype, lead = wide(x.dtype), len(x.sizes) - n
    spans = [max(-(-(o + 1) * s // m) - o * s // m for o in range(m)) for s, m in zip(space, sizes, strict=True)]

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        position, inside, total = list(outer[:lead]), [], None
        for k in range(n):
            o = outer[lead + k]
            start, end = floordiv(o * space[k], sizes[k], ext), floordiv(o * space[k] + space[k] + sizes[k] - 1, sizes[k], ext)
            position.append(start + inner[k])
            inside.append(op("lt", index_value(start + inner[k]), index_value(end)))
            span = index_value(end - start)
            total = span if total is None else op("mul", total, span)
        value = cast(masked(ctx.read(x, position, ext), all_of(inside), const(0, x.dtype)), dtype)
        assert total is not None
        return [Reduction(("a",), "sum", value, dtype)], [op("div", Ref("a", dtype), cast(total, dtype))]

    return ctx.reduce([(name, meta)], spans, make)[0]


# ---- resizing ------------------------------------------------------------------------------------------------------


def _ratio(size: int, out: int, scale: float | None) -> float:
    return 1.0 / scale if scale is not None and scale > 0 else size / out


def unheeded(size: int, out: int, scale: Any) -> Any:
    """The scale that eager's kernels for processors go by, if they count sizes that stay and those that are doubled apart."""
    return None if out in (size, 2 * size) and scale != out / size else scale


def _repeats(size: Any, out: Any, scale: Any, exact: bool) -> int:
    """How often each point comes, one after the other, where all do equally often; 0 where that is not so. It is looked at with eager's
    rounding."""
    if type(size) is not int or type(out) is not int or out % size:
        return 0
    times, places = out // size, torch.arange(out)
    positions = (places + 0.5 * exact).float() * torch.tensor(_ratio(size, out, scale), dtype=torch.float32)
    nearest = positions.floor().long().clamp(max=size - 1)
    return times if torch.equal(nearest, places // times) else 0


@ROWS.lowers(
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d"
)
def _nearest(ctx: Context, node: Node, x: View, sizes: Sequence[int], *scales: Any) -> Any:
    n, meta = len(sizes), ctx.metas[node.results[0] or ""]
    exact = "exact" in node.func.name()
    if 0 in x.sizes or 0 in meta.sizes:
        return NotImplemented
    scales = (*scales, *(None for _ in range(n - len(scales))))
    if traits_of(meta.device).processor and not exact:
        heeded = tuple(unheeded(s, m, f) for s, m, f in zip(x.sizes[2:], sizes, scales, strict=True))
        if n == 3 and meta.strides[1] == 1 and heeded != scales:
            return NotImplemented  # some of eager's kernels do so and some do not
        scales = heeded if n == 2 else scales

    def make(at: Any, ext: Any) -> Any:
        position, lets = list(at[:2]), []
        for k in range(n):
            size = x.sizes[2 + k]
            if size == sizes[k] and scales[k] is None:
                position.append(at[2 + k])
                continue
            if times := _repeats(size, sizes[k], scales[k], exact):
                position.append(floordiv(at[2 + k], times, ext))
                continue
            ratio = const(_ratio(size, sizes[k], scales[k]), "float32")
            o = cast(index_value(at[2 + k]), "float32")
            raw = op("floor", op("mul", op("add", o, const(0.5, "float32")) if exact else o, ratio))
            lets.append(Let(f"q{k}", op("min", cast(raw, "int64"), const(size - 1, "int64"))))
            position.append(index(f"q{k}"))
        return ctx.read(x, position, ext), lets, []

    return gathered(ctx, node, make)


@ROWS.lowers("upsample_linear1d upsample_bilinear2d upsample_trilinear3d")
def _linear(ctx: Context, node: Node, x: View, sizes: Sequence[int], align: bool, *scales: Any) -> Any:
    n, meta = len(sizes), ctx.metas[node.results[0] or ""]
    dtype = wide(x.dtype)
    if 0 in x.sizes or 0 in meta.sizes or x.dtype not in FLOATS:
        return NotImplemented
    if n < 3 and traits_of(meta.device).processor and math.prod(meta.sizes) > _LARGE:
        return NotImplemented  # torch's kernels have the places and weights of a line in tables
    scales = (*scales, *(None for _ in range(n - len(scales))))

    def make(at: Any, ext: Any) -> Any:
        lets: list[Let] = []
        corners: list[tuple[Index, Index, Expr] | None] = []
        for k in range(n):
            size = x.sizes[2 + k]
            if copied(size, sizes[k], scales[k], meta.device):
                corners.append(None)
                continue
            source = _source(at[2 + k], size, sizes[k], scales[k], align, dtype)
            lets.append(Let(f"q{k}", op("min", cast(op("floor", source), "int64"), const(size - 1, "int64"))))
            low = Ref(f"q{k}", "int64")
            lets.append(Let(f"p{k}", op("min", op("add", low, const(1, "int64")), const(size - 1, "int64"))))
            weight = op("min", op("max", op("sub", source, cast(low, dtype)), const(0, dtype)), const(1, dtype))
            corners.append((index(f"q{k}"), index(f"p{k}"), weight))
        return _blend(ctx, x, list(at), 2, corners, ext), lets, []

    return gathered(ctx, node, make)


def copied(size: int, out: int, scale: Any, device: str) -> bool:
    """Whether linear resizing leaves a dimension as it is. On processors a scale that does not change the size is not looked at."""
    return size == out and (scale is None or traits_of(device).processor)


def _source(at: Index, size: int, out: int, scale: Any, align: bool, dtype: str) -> Expr:
    """The real position in the input of output position ``at``."""
    o = cast(index_value(at), dtype)
    if align:
        return op("mul", o, const((size - 1) / (out - 1) if out > 1 else 0.0, dtype))
    half = const(0.5, dtype)
    raw = op("sub", op("mul", op("add", o, half), const(_ratio(size, out, scale), dtype)), half)
    return op("max", raw, const(0, dtype))


def _blend(ctx: Context, x: View, position: list[Index], done: int, corners: list[tuple[Index, Index, Expr] | None], ext: Any) -> Expr:
    """The weighted mean of the points beside ``position``, whose first ``done`` dimensions are those of ``x``."""
    if not corners:
        return ctx.load(x, position, ext)
    first, *rest = corners
    if first is None:  # eager adds the point itself, times zero: infinite ones are none afterwards
        same = _blend(ctx, x, position, done + 1, rest, ext)
        return op("add", same, op("mul", const(0, same.dtype), same))
    low, high, weight = first
    a, b = (_blend(ctx, x, [*position[:done], p, *position[done + 1 :]], done + 1, rest, ext) for p in (low, high))
    return op("add", op("mul", op("sub", const(1, a.dtype), weight), a), op("mul", weight, b))
