"""Writes at computed positions that combine with what is there, and those at positions in the flat tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..capture.graph import Meta, Node
from ..loops.index import Index, floordiv, index, mod
from ..loops.ir import Axis, Check, Expr, Let, Reduction, Ref, StoreMode
from ..lowered import Scatter
from .context import Context, Extents, View, extents_of, named_axes, positions
from .exprs import FLOATS, INTEGERS, cast, const, op, wide
from .indexing import gathered, wrapped
from .records import Rows
from .views import compose, on_vectors, reshape, view_axes

ROWS = Rows()
_MODES: dict[str, StoreMode] = {"sum": "add", "mean": "add", "prod": "mul", "multiply": "mul", "add": "add", "amax": "max", "amin": "min"}


def _meta(ctx: Context, node: Node) -> Meta:
    return ctx.metas[node.results[0] or ""]


def written(
    ctx: Context, name: str | None, meta: Meta, base: View | None, axes: Sequence[Axis], where: Sequence[Index], value: Expr,
    mode: StoreMode = "set", lets: Sequence[Let] = (), checks: Sequence[Check] = (),
) -> View:  # fmt: skip
    """A buffer that starts as ``base`` (None: zeros) and is written at ``where``, for each point of ``axes``."""
    start = None if base is None else base.buffer if base.indices is None else ctx.materialise(base).buffer
    view = ctx.buffer(name or ctx.fresh(), meta)
    ctx.nodes.append(Scatter(view.buffer, start, tuple(axes), tuple(where), value, mode, tuple(lets), tuple(checks), ctx.origin))
    return view


def _limit(dtype: str, low: bool) -> float | int:
    """The least or largest value of a type."""
    if dtype in FLOATS:
        return -math.inf if low else math.inf
    bits = 8 if dtype == "uint8" else int(dtype.removeprefix("int")) - 1
    return (0 if dtype == "uint8" else -(2**bits)) if low else 2**bits - 1


# ---- along a dimension -----------------------------------------------------------------------------------------------------


def _combined(ctx: Context, node: Node, x: View, dim: int, ids: View, src: Any, reduce: str, include_self: bool, whole: bool) -> Any:
    """``src`` combined into ``x`` at positions of ``dim``. ``whole``: ``ids`` has one dimension and names slices, else an element each."""
    meta = _meta(ctx, node)
    if meta.dtype not in FLOATS + INTEGERS or isinstance(src, complex):
        return NotImplemented
    if 0 in ids.sizes:
        return ctx.pointwise(node.results[0], meta, lambda at, ext: ctx.read(x, at, ext))
    ranks = {len(v.sizes) for v in (x, *(() if whole else (ids,)), src) if isinstance(v, View)}
    if 0 in x.sizes or len(ranks) > 1:  # some of them without dimensions
        return NotImplemented
    dim %= len(x.sizes)
    sizes = (*x.sizes[:dim], *ids.sizes, *x.sizes[dim + 1 :]) if whole else ids.sizes
    axes = named_axes("i", sizes)
    at, ext = positions(axes), extents_of(axes)
    message = f"index out of bounds for dimension {dim} with size {x.sizes[dim]}" if not whole else "index out of range in self"
    lets, checks = wrapped("g", ctx.read(ids, at[dim : dim + 1] if whole else at, ext), x.sizes[dim], "RuntimeError", message, False)
    where = (*at[:dim], index("g"), *at[dim + 1 :])

    def put(name: str | None, of: Meta, base: View | None, value: Expr, mode: StoreMode) -> View:
        return written(ctx, name, of, base, axes, where, value, mode, lets, checks)

    mode = _MODES[reduce]
    if not include_self:
        neutral: dict[StoreMode, Any] = {"add": 0, "mul": 1}
        start = neutral[mode] if mode in neutral else _limit(meta.dtype, mode == "max")
        x = put(None, meta, x, const(start, meta.dtype), "set")
    value = cast(ctx.read(src, at, ext), meta.dtype) if isinstance(src, View) else const(src, meta.dtype)
    if reduce != "mean":
        return put(node.results[0], meta, x, value, mode)
    total = put(None, meta, x, value, mode)
    wider = replace(meta, dtype="int64")
    count = put(None, wider, None, const(1, "int64"), "add")
    dtype = wide(meta.dtype)

    def quotient(at: Any, ext: Any) -> Expr:
        n = ctx.load(count, at, ext)
        n = op("add", n, const(1, "int64")) if include_self else op("max", n, const(1, "int64"))
        return op("div" if dtype in FLOATS else "floordiv", ctx.load(total, at, ext), cast(n, dtype))

    return ctx.pointwise(node.results[0], meta, quotient)


@ROWS.lowers("scatter.reduce scatter.value_reduce")
@on_vectors
def _scatter_reduce(ctx: Context, node: Node, x: View, dim: int, ids: View, src: Any, *, reduce: str) -> Any:
    return _combined(ctx, node, x, dim, ids, src, reduce, True, False)


@ROWS.lowers("scatter_reduce.two")
@on_vectors
def _scatter_reduce_two(
    ctx: Context, node: Node, x: View, dim: int, ids: View, src: View, reduce: str, *, include_self: bool = True
) -> Any:
    return _combined(ctx, node, x, dim, ids, src, reduce, include_self, False)


@ROWS.lowers("index_reduce")
@on_vectors
def _index_reduce(ctx: Context, node: Node, x: View, dim: int, ids: View, src: View, reduce: str, *, include_self: bool = True) -> Any:
    return _combined(ctx, node, x, dim, ids if ids.sizes else reshape(ids, (1,)), src, reduce, include_self, True)


# ---- in the flat tensor ----------------------------------------------------------------------------------------------------


def unflattened(position: Index, sizes: Sequence[int], extents: Extents) -> list[Index]:
    """The position under ``sizes`` of a row-major one."""
    out: list[Index] = []
    for n in reversed(sizes):
        out.append(mod(position, n, extents) if len(out) < len(sizes) - 1 else position)
        position = floordiv(position, n, extents)
    return out[::-1]


@ROWS.lowers("take", complex="indexed")
def _take(ctx: Context, node: Node, x: View, ids: View) -> Any:
    count = math.prod(x.sizes)
    if not count or 0 in ids.sizes:
        return NotImplemented

    def make(at: Any, ext: Any) -> Any:
        lets, checks = wrapped(
            "g", ctx.read(ids, at, ext), count, "IndexError", "out of range: tried to access an element outside of the tensor", True
        )
        return ctx.read(reshape(x, (count,)), (index("g"),), {**ext, "g": count}), lets, checks

    return gathered(ctx, node, make)


@ROWS.lowers("put")
def _put(ctx: Context, node: Node, x: View, ids: View, src: View, accumulate: bool = False) -> Any:
    meta, count = _meta(ctx, node), math.prod(x.sizes)
    if 0 in ids.sizes:
        return ctx.pointwise(node.results[0], meta, lambda at, ext: ctx.read(x, at, ext))
    if not count:
        return NotImplemented
    axes = named_axes("i", ids.sizes)
    at, ext = positions(axes), extents_of(axes)
    lets, checks = wrapped(
        "g", ctx.read(ids, at, ext), count, "IndexError", "out of range: tried to access an element outside of the tensor", True
    )
    where = unflattened(index("g"), x.sizes, {"g": count})
    value = ctx.read(reshape(src, ids.sizes), at, ext)
    return written(ctx, node.results[0], meta, x, axes, where, value, "add" if accumulate else "set", lets, checks)


@ROWS.lowers("max_unpool2d max_unpool3d")
def _max_unpool(ctx: Context, node: Node, x: View, ids: View, sizes: Sequence[int], *_: Any) -> Any:
    meta, n = _meta(ctx, node), len(sizes)
    count = math.prod(sizes)
    if 0 in x.sizes or not count:
        return NotImplemented
    axes = named_axes("i", x.sizes)
    at, ext = positions(axes), extents_of(axes)
    lets, checks = wrapped(
        "g",
        ctx.read(ids, at, ext),
        count,
        "RuntimeError",
        f"Found an invalid max index (output volumes are of size {'x'.join(map(str, sizes))})",
        False,
    )
    where = (*at[: len(at) - n], *unflattened(index("g"), sizes, {"g": count}))
    return written(ctx, node.results[0], meta, None, axes, where, ctx.read(x, at, ext), "set", lets, checks)


@ROWS.lowers("_unsafe_masked_index")
def _masked_index(ctx: Context, node: Node, x: View, mask: View, ids: Sequence[View | None], fill: Any) -> Any:
    if any(i is None for i in ids) or len(ids) != len(x.sizes) or 0 in x.sizes or isinstance(fill, complex):
        return NotImplemented

    def make(at: Any, ext: Any) -> Any:
        lets = [Let("inside", ctx.load_broadcast(mask, at, ext))]
        lets += _clamped(ctx, ids, x.sizes, at, ext)
        read = ctx.read(x, [index(f"g{d}") for d in range(len(ids))], ext)
        return op("where", Ref("inside", "bool"), read, const(fill, x.dtype)), lets, []

    return gathered(ctx, node, make)


def _clamped(ctx: Context, ids: Sequence[Any], sizes: Sequence[int], at: Any, ext: Any) -> list[Let]:
    lets = []
    for d, (i, n) in enumerate(zip(ids, sizes, strict=True)):
        raw = cast(ctx.load_broadcast(i, at, ext), "int64")
        lets.append(Let(f"g{d}", op("min", op("max", raw, const(0, "int64")), const(n - 1, "int64"))))
    return lets


@ROWS.lowers("_unsafe_masked_index_put_accumulate")
def _masked_index_put(ctx: Context, node: Node, x: View, mask: View, ids: Sequence[View | None], values: View) -> Any:
    if any(i is None for i in ids) or len(ids) != len(x.sizes) or 0 in x.sizes or 0 in values.sizes:
        return NotImplemented
    axes = named_axes("i", _broadcast(*(i.sizes for i in ids if i is not None)))
    at, ext = positions(axes), extents_of(axes)
    lets = _clamped(ctx, ids, x.sizes, at, ext)
    value = op("where", ctx.load_broadcast(mask, at, ext), ctx.read(expanded(values, axes), at, ext), const(0, x.dtype))
    return written(ctx, node.results[0], _meta(ctx, node), x, axes, [index(f"g{d}") for d in range(len(ids))], value, "add", lets)


def _broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return tuple(next((n for n in column if n != 1), 1) for column in zip(*padded, strict=True))


def expanded(x: View, axes: Sequence[Axis]) -> View:
    """``x`` broadcast to the extents of ``axes``."""
    sizes = tuple(a.extent.constant or 0 for a in axes)
    names, extents = view_axes(sizes)
    lead = len(sizes) - len(x.sizes)
    return compose(x, sizes, [index(0) if n == 1 else names[lead + k] for k, n in enumerate(x.sizes)], extents)


# ---- counting --------------------------------------------------------------------------------------------------------------


def _bounds(ctx: Context, scalar: Meta, x: View) -> tuple[Expr, Expr]:
    """The least and the largest element, moved apart by one each where they are equal."""

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        value = ctx.load(x, inner, ext)
        low, high = Ref("a", x.dtype), Ref("b", x.dtype)
        apart = op("where", op("eq", low, high), const(1, x.dtype), const(0, x.dtype))
        both = [Reduction(("a",), "min", value, x.dtype), Reduction(("b",), "max", value, x.dtype)]
        return both, [op("sub", low, apart), op("add", high, apart)]

    if not x.sizes:
        x = reshape(x, (1,))
    low, high = ctx.reduce([(None, scalar)] * 2, x.sizes, make)
    return ctx.load(low, (), {}), ctx.load(high, (), {})


@ROWS.lowers("histc")
def _histc(ctx: Context, node: Node, x: View, bins: int = 100, low: Any = 0, high: Any = 0) -> Any:
    """Counts elements in equal spans from ``low`` to ``high``; equal bounds stand for those of the data, and these for one around them."""
    meta, dtype = _meta(ctx, node), x.dtype
    if dtype not in ("float32", "float64") or 0 in x.sizes or low > high:
        return NotImplemented
    axes = named_axes("i", x.sizes)
    value = ctx.read(x, positions(axes), extents_of(axes))
    first, last = const(low, dtype), const(high, dtype)
    if low == high:
        first, last = _bounds(ctx, meta.contiguous(()), x)
    inside = op("logical_and", op("ge", value, first), op("le", value, last))
    share = op("mul", op("div", op("sub", value, first), op("sub", last, first)), const(bins, dtype))
    place = op("min", op("max", cast(op("where", inside, share, const(0, dtype)), "int64"), const(0, "int64")), const(bins - 1, "int64"))
    one = op("where", inside, const(1, meta.dtype), const(0, meta.dtype))
    return written(ctx, node.results[0], meta, None, axes, [index("g")], one, "add", [Let("g", place)])


__all__ = ["ROWS", "expanded", "unflattened", "written"]
