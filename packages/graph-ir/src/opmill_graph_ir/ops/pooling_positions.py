"""Pooling that remembers where the largest elements are, pooling to a given size, and what gives gradients back to windows.

Backward operators gather: each element of the input looks at the windows that it is in, of which there are few. So nothing is
written twice, and the loops can be shared among threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..capture.graph import Meta, Node
from ..loops.index import ZERO, Index, floordiv, index, mod
from ..loops.ir import Expr, Let, Reduction, Ref
from ..lowered import Reduce
from .context import FEW, Context, View, extents_of, named_axes, positions
from .creation import masked
from .exprs import FLOATS, all_of, cast, const, index_value, op, wide
from .pooling import are_narrow, many, window
from .records import Rows

ROWS = Rows()
_LARGE, _SMALL = 1 << 14, 1 << 8
"""Elements from which on torch's operators, which step through windows without asking at each tap, take less time than loops on a
processor: the places of maxima, and gradients of averages over windows that share elements in steps (a fifth to four fifths)."""


def _meta(ctx: Context, node: Node, k: int = 0) -> Meta:
    return ctx.metas[node.results[k] or ""]


def _decoded(flat: Expr, sizes: Sequence[int]) -> list[Expr]:
    """A row-major position as one a dimension."""
    out = []
    for n in reversed(sizes[1:]):
        out.append(op("mod", flat, const(n, "int64")))
        flat = op("floordiv", flat, const(n, "int64"))
    return [flat, *reversed(out)]


def _flat(positions: Sequence[Expr], sizes: Sequence[int]) -> Expr:
    total = positions[0]
    for p, n in zip(positions[1:], sizes[1:], strict=True):
        total = op("add", op("mul", total, const(n, "int64")), p)
    return total


# ---- the largest of a window and its place ---------------------------------------------------------------------------------


def _places(value: Expr, dtype: str, inner: Sequence[Index], sizes: Sequence[int]) -> tuple[list[Reduction], list[Expr]]:
    """Reductions of a window that give its largest element as "a", and that element's place: of equal ones the first, of NaN the last, as
    eager has it."""
    here = _flat([index_value(i) for i in inner], sizes)
    lost = Reduction(("c",), "max", op("where", op("isnan", value), here, const(-1, "int64")), "int64")
    last, first = Ref("c", "int64"), Ref("b", "int64")
    return [Reduction(("a", "b"), "argmax", value, dtype), lost], _decoded(
        op("where", op("ge", last, const(0, "int64")), last, first), sizes
    )


def largest(ctx: Context, node: Node, x: View, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """Windows' maxima, and where in the plane of the input they are."""
    n, meta = len(kernel), _meta(ctx, node)
    dtype, spaces = wide(x.dtype), x.sizes[-n:]

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        position, inside = window(x, outer, inner, stride, padding, dilation, meta.sizes, kernel)
        value = cast(masked(ctx.read(x, position, ext), inside, const(-math.inf, x.dtype)), dtype)
        reductions, offsets = _places(value, dtype, inner, kernel)
        places = []
        for k, offset in enumerate(offsets):
            start = index_value(outer[len(outer) - n + k] * stride[k] - padding[k])
            at = op("add", start, op("mul", offset, const(dilation[k], "int64")))
            before = op("lt", at, const(0, "int64"))  # nothing but -inf: the first place inside
            places.append(op("where", before, op("mod", at, const(dilation[k], "int64")), at) if padding[k] else at)
        return reductions, [Ref("a", dtype), _flat(places, spaces)]

    return ctx.reduce([(r, _meta(ctx, node, k)) for k, r in enumerate(node.results)], kernel, make)


_EXACT = 1 << 24
"""Whole numbers up to which float32 has all."""


def _reach(spaces: Sequence[int], kernel: Sequence[int], dilation: Sequence[int]) -> int:
    """Elements of the plane from a window's first to its last."""
    return sum((k - 1) * d * math.prod(spaces[i + 1 :]) for i, (k, d) in enumerate(zip(kernel, dilation, strict=True))) + 1


def _in_two_passes(spaces: Sequence[Any], kernel: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether places are numbers that are known and exact, and each window has an element: with steps in it, it may lie around all."""
    known = all(type(n) is int for n in spaces)
    return known and not any(p and d > 1 for p, d in zip(padding, dilation, strict=True)) and _reach(spaces, kernel, dilation) < _EXACT


def largest_and_where(ctx: Context, node: Node, x: View, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """As ``largest``, in two passes over each window: the maximum, and then which element that is. Both are vectors of results on
    processors, where a maximum that takes its place along is none.

    Places count from where the window begins, in elements of the plane. The first of equal elements is meant, but the last NaN: the largest
    of ``whole - place``, or of ``place + 1``, in numbers of the type that is compared."""
    n, meta = len(kernel), _meta(ctx, node)
    dtype, spaces = wide(x.dtype), x.sizes[-n:]
    steps = [math.prod(spaces[k + 1 :]) for k in range(n)]
    whole = _reach(spaces, kernel, dilation)

    def read(outer: Any, inner: Any, ext: Any) -> tuple[Expr, Expr | None]:
        position, inside = window(x, outer, inner, stride, padding, dilation, meta.sizes, kernel)
        return cast(masked(ctx.read(x, position, ext), inside, const(-math.inf, x.dtype)), dtype), inside

    def maximum(outer: Any, inner: Any, ext: Any) -> Any:
        return [Reduction(("a",), "max", read(outer, inner, ext)[0], dtype)], [Ref("a", dtype)]

    top = ctx.reduce([(node.results[0], meta)], kernel, maximum)[0]

    def where(outer: Any, inner: Any, ext: Any) -> Any:
        value, inside = read(outer, inner, ext)
        highest = ctx.load(top, outer, ext)
        place = sum((i * (d * s) for i, d, s in zip(inner, dilation, steps, strict=True)), ZERO)
        rank = [cast(index_value(i), dtype) for i in (index(whole) - place, place + 1)]
        same = op("eq", value, highest)
        none = const(0, dtype)
        found = op("where", same if inside is None else op("logical_and", inside, same), rank[0], none)
        found = op("where", op("isnan", value), rank[1], found)
        first = sum(((o * t - p) * s for o, t, p, s in zip(outer[-n:], stride, padding, steps, strict=True)), ZERO)
        chosen = Ref("a", dtype)
        offset = op("where", op("isnan", highest), op("sub", chosen, const(1, dtype)), op("sub", const(whole, dtype), chosen))
        return [Reduction(("a",), "max", found, dtype)], [op("add", index_value(first), cast(offset, "int64"))]

    return [top, ctx.reduce([(node.results[1], _meta(ctx, node, 1))], kernel, where)[0]]


@ROWS.lowers("max_pool2d_with_indices", any_layout=True, gradient="max_pool2d_with_indices_backward")
@ROWS.lowers("max_pool3d_with_indices", gradient="max_pool3d_with_indices_backward")
def _max_pool(
    ctx: Context, node: Node, x: View, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil_mode: bool = False
) -> Any:
    n, meta = 2 if "2d" in node.func.name() else 3, _meta(ctx, node)
    if x.dtype not in FLOATS or 0 in x.sizes or 0 in meta.sizes:
        return NotImplemented
    kernel, padding, dilation = many(kernel, n), many(padding, n), many(dilation, n)
    stride, dtype = many(stride, n) if stride else kernel, wide(x.dtype)
    if any(k > t for k, t in zip(kernel, stride, strict=True)) and are_narrow(ctx, x, meta, kernel, stride):
        return NotImplemented
    if node.results[1] in ctx.used:
        rows = meta.strides[-n - 1] != 1 or meta.sizes[-n - 1] == 1  # torch's operator makes vectors of channels alone
        if ctx.on_processor(x, _LARGE) and not (rows and _in_two_passes(x.sizes[-n:], kernel, padding, dilation)):
            return NotImplemented
        if ctx.on_processor(x, 0) and _in_two_passes(x.sizes[-n:], kernel, padding, dilation):
            return largest_and_where(ctx, node, x, kernel, stride, padding, dilation)
        return largest(ctx, node, x, kernel, stride, padding, dilation)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        position, inside = window(x, outer, inner, stride, padding, dilation, meta.sizes, kernel)
        value = cast(masked(ctx.read(x, position, ext), inside, const(-math.inf, x.dtype)), dtype)
        return [Reduction(("a",), "max", value, dtype)], [Ref("a", dtype)]

    return [ctx.reduce([(node.results[0], meta)], kernel, make)[0], None]


@ROWS.lowers("adaptive_max_pool2d adaptive_max_pool3d")
def _adaptive_max(ctx: Context, node: Node, x: View, sizes: Sequence[int]) -> Any:
    n, lead = len(sizes), len(x.sizes) - len(sizes)
    if 0 in x.sizes or 0 in sizes or x.dtype not in FLOATS:
        return NotImplemented
    spaces, dtype = x.sizes[lead:], wide(x.dtype)
    if node.results[1] not in ctx.used and all(s % o == 0 for s, o in zip(spaces, sizes, strict=True)):
        return _max_pool(ctx, node, x, tuple(s // o for s, o in zip(spaces, sizes, strict=True)))
    if ctx.on_processor(x, FEW):
        return NotImplemented  # windows of unequal sizes are asked about at each tap: torch's kernels are twice to twenty times as fast
    spans = [_longest(s, o) for s, o in zip(spaces, sizes, strict=True)]

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        position, inside, starts = list(outer[:lead]), [], []
        for k in range(n):
            o = outer[lead + k]
            start, end = floordiv(o * spaces[k], sizes[k], ext), floordiv(o * spaces[k] + spaces[k] + sizes[k] - 1, sizes[k], ext)
            starts.append(start)
            position.append(start + inner[k])
            inside.append(op("lt", index_value(start + inner[k]), index_value(end)))
        value = cast(masked(ctx.read(x, position, ext), all_of(inside), const(-math.inf, x.dtype)), dtype)
        reductions, offsets = _places(value, dtype, inner, spans)
        places = [op("add", index_value(s), p) for s, p in zip(starts, offsets, strict=True)]
        return reductions, [Ref("a", dtype), _flat(places, spaces)]

    return ctx.reduce([(r, _meta(ctx, node, k)) for k, r in enumerate(node.results)], spans, make)


def _longest(size: int, out: int) -> int:
    """The longest of the spans that pooling ``size`` to ``out`` makes."""
    return max(-(-(o + 1) * size // out) - o * size // out for o in range(out))


# ---- which windows an element is in ----------------------------------------------------------------------------------------


def _windows(at: Index, size: int, kernel: int, stride: int, padding: int, dilation: int, ext: Any) -> tuple[Index, int]:
    """The first window (it may be before the first there is) that position ``at`` of a dimension can be in, and how many can follow."""
    reach = (kernel - 1) * dilation + 1
    shift = -(-(reach + stride) // stride)  # keeps what is divided from being negative
    first = floordiv(at + padding - reach + stride + shift * stride, stride, ext) - shift
    return first, -(-reach // stride)


def _gathered(
    ctx: Context, node: Node, meta: Meta, spaces: Sequence[int], counts: Sequence[int], term: Callable[[Any, Any, Any], Expr]
) -> View:  # fmt: skip
    """The gradient of an input: a sum over the windows of each element."""
    dtype = wide(meta.dtype)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        return [Reduction(("a",), "sum", term(outer, inner, ext), dtype)], [Ref("a", dtype)]

    return ctx.reduce([(node.results[0], meta)], counts, make)[0]


def _from_windows(
    ctx: Context, grad: View, at: Sequence[Index], where: Sequence[Index], ext: Any, dtype: str, also: Callable[[Any], list[Expr]]
) -> Expr:
    """The gradient of a window, 0 where there is none; ``also`` gives further conditions from a mask that is safe to read under."""
    n = len(where)
    inside = []
    for w, size in zip(where, grad.sizes[-n:], strict=True):
        inside += [op("ge", index_value(w), const(0, "int64")), op("lt", index_value(w), const(size, "int64"))]
    mask = all_of(inside)
    conditions = also(mask)
    return cast(masked(ctx.read(grad, (*at, *where), ext), all_of([*inside, *conditions]), const(0, grad.dtype)), dtype)


@ROWS.lowers("max_pool2d_with_indices_backward", any_layout=True)
@ROWS.lowers("max_pool3d_with_indices_backward")
def _max_backward(
    ctx: Context, node: Node, grad: View, x: View, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, ids: View
) -> Any:
    n, meta = 2 if "2d" in node.func.name() else 3, _meta(ctx, node)
    if meta.dtype not in FLOATS or 0 in x.sizes or 0 in grad.sizes or ctx.on_processor(x, FEW):
        return NotImplemented  # torch's operator adds to one place for each window: a fifth to a fifteenth of the time
    kernel, padding, dilation = many(kernel, n), many(padding, n), many(dilation, n)
    stride = many(stride, n) if stride else kernel
    lead, spaces = len(x.sizes) - n, x.sizes[-n:]
    counts = [_windows(Index(()), s, k, t, p, d, {})[1] for s, k, t, p, d in zip(spaces, kernel, stride, padding, dilation, strict=True)]

    def term(outer: Any, inner: Any, ext: Any) -> Expr:
        at = outer[lead:]
        parts = zip(at, spaces, kernel, stride, padding, dilation, inner, strict=True)
        where = [_windows(a, s, k, t, p, d, ext)[0] + j for a, s, k, t, p, d, j in parts]
        mine = _flat([index_value(a) for a in at], spaces)

        def chosen(mask: Any) -> list[Expr]:
            place = masked(ctx.read(ids, (*outer[:lead], *where), ext), mask, const(-1, "int64"))
            return [op("eq", place, mine)]

        return _from_windows(ctx, grad, outer[:lead], where, ext, wide(meta.dtype), chosen)

    return _gathered(ctx, node, meta, spaces, counts, term)


@ROWS.lowers("avg_pool2d_backward", any_layout=True)
@ROWS.lowers("avg_pool3d_backward")
def _avg_backward(
    ctx: Context, node: Node, grad: View, x: View, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, whole: bool, divisor: Any
) -> Any:
    n, meta = 2 if "2d" in node.func.name() else 3, _meta(ctx, node)
    dtype = wide(meta.dtype)
    if meta.dtype not in FLOATS or 0 in x.sizes or 0 in grad.sizes:
        return NotImplemented
    kernel, padding = many(kernel, n), many(padding, n)
    stride = many(stride, n) if stride else kernel
    lead, spaces = len(x.sizes) - n, x.sizes[-n:]
    counts = [_windows(Index(()), s, k, t, p, 1, {})[1] for s, k, t, p in zip(spaces, kernel, stride, padding, strict=True)]
    if math.prod(counts) > 1 and any(t > 1 for t in stride) and ctx.on_processor(x, _SMALL):
        return NotImplemented  # which of two windows an element is in is asked at each: torch's operator steps through windows

    def term(outer: Any, inner: Any, ext: Any) -> Expr:
        parts = zip(outer[lead:], spaces, kernel, stride, padding, inner, strict=True)
        where = [_windows(a, s, k, t, p, 1, ext)[0] + j for a, s, k, t, p, j in parts]

        def covers(mask: Any) -> list[Expr]:
            starts = [w * t - p for w, t, p in zip(where, stride, padding, strict=True)]
            return [op("le", index_value(s), index_value(a)) for s, a in zip(starts, outer[lead:], strict=True)]

        g = _from_windows(ctx, grad, outer[:lead], where, ext, dtype, covers)
        size: Expr = const(divisor, "int64") if divisor else const(1, "int64")
        if not divisor:
            for w, k, t, p, s in zip(where, kernel, stride, padding, spaces, strict=True):
                start = index_value(w * t - p)
                end = op("min", op("add", start, const(k, "int64")), const(s + p, "int64"))
                if not whole:
                    start, end = op("max", start, const(0, "int64")), op("min", end, const(s, "int64"))
                size = op("mul", size, op("sub", end, start))
        return op("div", g, cast(op("max", size, const(1, "int64")) if not divisor else size, dtype))

    return _gathered(ctx, node, meta, spaces, counts, term)


def _adaptive_windows(at: Index, size: int, out: int, ext: Any) -> tuple[Index, int]:
    """The first window of adaptive pooling that a position is in, and how many any is in at most."""
    most = max(-(-(y + 1) * out // size) - y * out // size for y in range(size))
    return floordiv(at * out, size, ext), most


def _adaptive_backward(ctx: Context, node: Node, grad: View, x: View, ids: View | None) -> Any:
    n = 2 if "2d" in node.func.name() else 3
    meta, lead = _meta(ctx, node), len(x.sizes) - n
    dtype = wide(meta.dtype)
    spaces, sizes = x.sizes[lead:], grad.sizes[lead:]
    if meta.dtype not in FLOATS or 0 in x.sizes or 0 in grad.sizes:
        return NotImplemented
    counts = [_adaptive_windows(Index(()), s, o, {})[1] for s, o in zip(spaces, sizes, strict=True)]
    if math.prod(counts) > 1 and ctx.on_processor(x, _SMALL):
        return NotImplemented
    side_by_side = not any(s % o for s, o in zip(spaces, sizes, strict=True))  # a point is in one window

    def term(outer: Any, inner: Any, ext: Any) -> Expr:
        at = outer[lead:]
        where = [_adaptive_windows(a, s, o, ext)[0] + j for a, s, o, j in zip(at, spaces, sizes, inner, strict=True)]
        starts = [floordiv(w * s, o, ext) for w, s, o in zip(where, spaces, sizes, strict=True)]
        ends = [floordiv(w * s + s + o - 1, o, ext) for w, s, o in zip(where, spaces, sizes, strict=True)]

        def covers(mask: Any) -> list[Expr]:
            if ids is None:
                return [] if side_by_side else [op("le", index_value(s), index_value(a)) for s, a in zip(starts, at, strict=True)]
            place = masked(ctx.read(ids, (*outer[:lead], *where), ext), mask, const(-1, "int64"))
            return [op("eq", place, _flat([index_value(a) for a in at], spaces))]

        g = _from_windows(ctx, grad, outer[:lead], where, ext, dtype, covers)
        if ids is not None:
            return g
        size: Expr = const(1, "int64")
        for s, e in zip(starts, ends, strict=True):
            size = op("mul", size, index_value(e - s))
        return op("div", g, cast(size, dtype))

    return _gathered(ctx, node, meta, spaces, counts, term)


@ROWS.lowers("_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward")
def _adaptive_avg_backward(ctx: Context, node: Node, grad: View, x: View) -> Any:
    return _adaptive_backward(ctx, node, grad, x, None)


@ROWS.lowers("adaptive_max_pool2d_backward adaptive_max_pool3d_backward")
def _adaptive_max_backward(ctx: Context, node: Node, grad: View, x: View, ids: View) -> Any:
    if ctx.on_processor(x, FEW):
        return NotImplemented
    return _adaptive_backward(ctx, node, grad, x, ids)


# ---- sums of what windows hold ---------------------------------------------------------------------------------------------


@ROWS.lowers("col2im")
def _col2im(ctx: Context, node: Node, x: View, sizes: Sequence[int], kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    meta = _meta(ctx, node)
    if meta.dtype not in FLOATS or 0 in x.sizes or 0 in meta.sizes:
        return NotImplemented
    kernel, dilation, padding, stride = (many(v, 2) for v in (kernel, dilation, padding, stride))
    blocks = [(s + 2 * p - d * (k - 1) - 1) // t + 1 for s, k, d, p, t in zip(sizes, kernel, dilation, padding, stride, strict=True)]
    dtype = wide(meta.dtype)

    counts = [-(-k // t) if d == 1 else k for k, t, d in zip(kernel, stride, dilation, strict=True)]

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        where, taps, inside = [], [], []
        for k, (j, t, d) in enumerate(zip(inner, stride, dilation, strict=True)):
            at = outer[len(outer) - 2 + k] + padding[k]
            if d == 1:  # of the windows over a place, the one j before the last
                block, tap = floordiv(at, t, ext) - j, mod(at, t, ext) + j * t
                inside += [op("lt", index_value(tap), const(kernel[k], "int64"))] if kernel[k] % t else []
            else:
                raw, tap, shift = at - j * d, j, -(-(kernel[k] * d) // t)
                block = floordiv(raw + shift * t, t, ext) - shift
                inside.append(op("eq", index_value(block * t), index_value(raw)))
            where.append(block)
            taps.append(tap)
            inside += [op("ge", index_value(block), const(0, "int64"))] if counts[k] > 1 else []
            inside += [op("lt", index_value(block), const(blocks[k], "int64"))] if blocks[k] * t < sizes[k] + padding[k] else []
        channel = (outer[-3] * kernel[0] + taps[0]) * kernel[1] + taps[1]
        read = ctx.read(x, (*outer[:-3], channel, where[0] * blocks[1] + where[1]), ext)
        return [Reduction(("a",), "sum", cast(masked(read, all_of(inside), const(0, x.dtype)), dtype), dtype)], [Ref("a", dtype)]

    if math.prod(counts) == 1:  # each element is in one window at most
        return ctx.pointwise(node.results[0], meta, lambda at, ext: make(at, (ZERO, ZERO), ext)[0][0].value)
    return ctx.reduce([(node.results[0], meta)], counts, make)[0]


@ROWS.lowers("unfold_backward", complex="each part")
def _unfold_backward(ctx: Context, node: Node, grad: View, sizes: Sequence[int], dim: int, size: int, step: int) -> Any:
    meta = _meta(ctx, node)
    if meta.dtype not in FLOATS or 0 in grad.sizes or 0 in meta.sizes or not sizes:
        return NotImplemented
    dim, dtype = dim % len(sizes), wide(meta.dtype)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        block, place = floordiv(outer[dim], step, ext) - inner[0], mod(outer[dim], step, ext) + inner[0] * step
        inside = [op("ge", index_value(block), const(0, "int64")), op("lt", index_value(block), const(grad.sizes[dim], "int64"))]
        inside += [op("lt", index_value(place), const(size, "int64"))] if size % step else []
        read = ctx.read(grad, (*outer[:dim], block, *outer[dim + 1 :], place), ext)
        return [Reduction(("a",), "sum", cast(masked(read, all_of(inside), const(0, grad.dtype)), dtype), dtype)], [Ref("a", dtype)]

    return ctx.reduce([(node.results[0], meta)], [-(-size // step)], make)[0]  # as many windows lie over a place


# ---- padding ---------------------------------------------------------------------------------------------------------------


@ROWS.lowers(" ".join(f"{kind}_pad{n}d_backward" for kind in ("reflection", "replication") for n in (1, 2, 3)))
def _pad_backward(ctx: Context, node: Node, grad: View, x: View, pad: Sequence[int]) -> Any:
    """Each element from where it went: its own place and its images behind the ends (reflected: one each; repeated: those of the ends)."""
    meta, n, lead = _meta(ctx, node), len(pad) // 2, len(x.sizes) - len(pad) // 2
    reflected, dtype = "reflection" in node.func.name(), wide(meta.dtype)
    if meta.dtype not in FLOATS or 0 in x.sizes or 0 in grad.sizes or ctx.on_processor(x, FEW):
        return NotImplemented  # torch's kernels for processors go over the lines once: three to fifteen times as fast
    before = [pad[2 * (n - 1 - k)] for k in range(n)]
    after = [pad[2 * (n - 1 - k) + 1] for k in range(n)]
    counts = [3 if reflected else 1 + max(b, 0) + max(a, 0) for b, a in zip(before, after, strict=True)]

    def term(outer: Any, inner: Any, ext: Any) -> Expr:
        where, inside = list(outer[:lead]), []
        for k in range(n):
            at, size, out, j = index_value(outer[lead + k]), x.sizes[lead + k], grad.sizes[lead + k], index_value(inner[k])
            own = op("add", at, const(before[k], "int64"))
            if reflected:
                low, high = op("sub", const(before[k], "int64"), at), op("sub", const(2 * (size - 1) + before[k], "int64"), at)
                place = op("where", op("eq", j, const(0, "int64")), own, op("where", op("eq", j, const(1, "int64")), low, high))
                low_is_new = op("logical_or", op("ne", j, const(1, "int64")), op("gt", at, const(0, "int64")))
                high_is_new = op("logical_or", op("ne", j, const(2, "int64")), op("lt", at, const(size - 1, "int64")))
                inside += [low_is_new, high_is_new]
            else:
                front = max(before[k], 0)
                first = op("logical_and", op("ge", j, const(1, "int64")), op("le", j, const(front, "int64")))
                behind = op("gt", j, const(front, "int64"))
                step = op("where", first, op("neg", j), op("where", behind, op("sub", j, const(front, "int64")), const(0, "int64")))
                place = op("add", own, step)
                at_start = op("logical_or", op("logical_not", first), op("eq", at, const(0, "int64")))
                at_end = op("logical_or", op("logical_not", behind), op("eq", at, const(size - 1, "int64")))
                inside += [at_start, at_end]
            inside += [op("ge", place, const(0, "int64")), op("lt", place, const(out, "int64"))]
            lets.append(Let(f"q{k}", op("min", op("max", place, const(0, "int64")), const(out - 1, "int64"))))
            where.append(index(f"q{k}"))
        return cast(masked(ctx.read(grad, where, ext), all_of(inside), const(0, grad.dtype)), dtype)

    lets: list[Let] = []
    axes, loops = named_axes("i", meta.sizes), named_axes("r", counts)
    value = term(positions(axes), positions(loops), extents_of(axes) | extents_of(loops))
    view = ctx.buffer(node.results[0] or ctx.fresh(), meta)
    total = Reduction(("a",), "sum", value, dtype)
    ctx.nodes.append(Reduce((view.buffer,), axes, loops, (total,), (cast(Ref("a", dtype), meta.dtype),), tuple(lets), (), ctx.origin))
    return view
