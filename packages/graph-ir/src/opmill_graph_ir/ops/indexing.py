"""Reading and writing at computed positions, and putting tensors together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Meta, Node
from ..loops.index import ZERO, Index, floordiv, index, mod
from ..loops.ir import Check, Expr, Let, Ref, StoreMode
from ..lowered import Pointwise, Scatter
from .context import Context, View, extents_of, named_axes, positions
from .creation import masked
from .exprs import FLOATS, INTEGERS, SUPPORTED, all_of, cast, const, index_value, known_order, op, wide
from .records import Rows
from .views import on_vectors, reshape, slice_bounds

ROWS = Rows()
_MOSTLY_ZERO = 4
"""Rows of a table for each that is read, from which on its gradient is zeros and a few rows."""


def _meta(ctx: Context, node: Node) -> Any:
    return ctx.metas[node.results[0] or ""]


def wrapped(name: str, value: Expr, size: int, error: str, message: str, negative: bool) -> tuple[list[Let], list[Check]]:
    """Lets and checks that make ``name`` a position in a dimension of ``size`` from a value that may count from the end."""
    raw = Ref(f"{name}_raw", "int64")
    lets = [Let(raw.name, cast(value, "int64"))]
    low = op("ge", raw, const(-size if negative else 0, "int64"))
    checks = [Check(op("logical_and", low, op("lt", raw, const(size, "int64"))), error, message)]
    at = op("where", op("lt", raw, const(0, "int64")), op("add", raw, const(size, "int64")), raw) if negative else raw
    lets.append(Let(name, at))
    return lets, checks


def gathered(ctx: Context, node: Node, make: Any) -> View:
    """A pointwise buffer with lets and checks of its own: ``make(at, extents) -> (value, lets, checks)``."""
    name, meta = node.results[0], _meta(ctx, node)
    axes = named_axes("i", meta.sizes)
    value, lets, checks = make(positions(axes), extents_of(axes))
    view = ctx.buffer(name or ctx.fresh(), meta)
    ctx.nodes.append(Pointwise(view.buffer, axes, cast(value, meta.dtype), tuple(lets), tuple(checks), ctx.origin))
    return view


@ROWS.lowers("embedding", moves=True)
def _embedding(ctx: Context, node: Node, weight: View, ids: View, *_: Any) -> Any:
    if 0 in weight.sizes or 0 in ids.sizes:
        return NotImplemented

    def make(at: Any, ext: Any) -> Any:
        lets, checks = wrapped("g", ctx.read(ids, at[:-1], ext), weight.sizes[0], "IndexError", "index out of range in self", False)
        return ctx.read(weight, (index("g"), at[-1]), ext), lets, checks

    return gathered(ctx, node, make)


@ROWS.lowers("embedding_dense_backward")
def _embedding_backward(ctx: Context, node: Node, grad: View, ids: View, rows: int, padding: int, by_frequency: bool) -> Any:
    meta = _meta(ctx, node)
    if by_frequency or 0 in grad.sizes or meta.dtype not in FLOATS:
        return NotImplemented
    if wide(meta.dtype) != meta.dtype and traits_of(meta.device).processor and _MOSTLY_ZERO * math.prod(ids.sizes) < rows:
        return NotImplemented  # sums in float32 would be all of the table, twice
    axes = named_axes("i", grad.sizes)
    at, ext = positions(axes), extents_of(axes)
    raw = Ref("g_raw", "int64")
    inside = op("logical_and", op("ge", raw, const(0, "int64")), op("lt", raw, const(rows, "int64")))
    lets = [Let("g_raw", cast(ctx.read(ids, at[:-1], ext), "int64")), Let("g", op("where", inside, raw, const(0, "int64")))]
    counts = inside if padding < 0 else op("logical_and", inside, op("ne", raw, const(padding, "int64")))
    kept = op("where", counts, ctx.read(grad, at, ext), const(0, grad.dtype))  # as torch's, which has checked nothing either
    wider = replace(meta, dtype=wide(meta.dtype))
    total = ctx.buffer(node.results[0] if wider == meta and node.results[0] else ctx.fresh(), wider)
    ctx.nodes.append(Scatter(total.buffer, None, axes, (index("g"), at[-1]), cast(kept, wider.dtype), "add", tuple(lets), (), ctx.origin))
    return total if wider == meta else ctx.pointwise(node.results[0], meta, lambda at, ext: ctx.read(total, at, ext))


@ROWS.lowers("index_select", complex="indexed", moves=True)
@on_vectors
def _index_select(ctx: Context, node: Node, x: View, dim: int, ids: View) -> Any:
    ids = ids if ids.sizes else reshape(ids, (1,))
    if 0 in x.sizes or 0 in ids.sizes:
        return NotImplemented
    dim %= len(x.sizes)

    def make(at: Any, ext: Any) -> Any:
        lets, checks = wrapped("g", ctx.read(ids, at[dim : dim + 1], ext), x.sizes[dim], "IndexError", "index out of range in self", False)
        return ctx.read(x, (*at[:dim], index("g"), *at[dim + 1 :]), ext), lets, checks

    return gathered(ctx, node, make)


@ROWS.lowers("gather", complex="indexed")
@on_vectors
def _gather(ctx: Context, node: Node, x: View, dim: int, ids: View, **_: Any) -> Any:
    if 0 in x.sizes or 0 in ids.sizes or not x.sizes or len(ids.sizes) != len(x.sizes):
        return NotImplemented
    dim %= len(x.sizes)
    size = x.sizes[dim]

    def make(at: Any, ext: Any) -> Any:
        message = f"index out of bounds for dimension {dim} with size {size}"
        lets, checks = wrapped("g", ctx.read(ids, at, ext), size, "RuntimeError", message, False)
        return ctx.read(x, (*at[:dim], index("g"), *at[dim + 1 :]), ext), lets, checks

    return gathered(ctx, node, make)


@ROWS.lowers("index.Tensor", complex="indexed", moves=True)
def _index(ctx: Context, node: Node, x: View, ids: Sequence[View | None]) -> Any:
    given = [k for k, i in enumerate(ids) if i is not None]
    tensors: list[View] = [i for i in ids if i is not None]
    if any(i.dtype not in ("int64", "int32") for i in tensors) or 0 in x.sizes or 0 in _meta(ctx, node).sizes:
        return NotImplemented
    rank = max(len(t.sizes) for t in tensors)
    first = given[0] if given == list(range(given[0], given[-1] + 1)) else 0

    def make(at: Any, ext: Any) -> Any:
        block, rest = at[first : first + rank], [*at[:first], *at[first + rank :]]
        lets: list[Let] = []
        checks: list[Check] = []
        where: list[Index] = []
        for d, size in enumerate(x.sizes):
            tensor = ids[d] if d < len(ids) else None
            if tensor is None:
                where.append(rest.pop(0))
                continue
            message = f"index is out of bounds for dimension {d} with size {size}"
            more, bounds = wrapped(f"g{d}", ctx.load_broadcast(tensor, block, ext), size, "IndexError", message, True)
            lets, checks = lets + more, checks + bounds
            where.append(index(f"g{d}"))
        return ctx.read(x, where, ext), lets, checks

    return gathered(ctx, node, make)


# ---- scatters ------------------------------------------------------------------------------------------------------


def _base(ctx: Context, x: View) -> str:
    """``x`` as a buffer to start from."""
    return x.buffer if x.indices is None else ctx.materialise(x).buffer


@ROWS.lowers("scatter.src scatter.value scatter_add")
@on_vectors
def _scatter(ctx: Context, node: Node, x: View, dim: int, ids: View, src: Any) -> Any:
    if isinstance(src, complex):
        return NotImplemented
    if 0 in ids.sizes:
        return _copy(ctx, node, x)
    if 0 in x.sizes or len(ids.sizes) != len(x.sizes):  # of nothing, no position is one: torch's kernel says so
        return NotImplemented
    dim %= len(x.sizes)
    name, meta = node.results[0], _meta(ctx, node)
    axes = named_axes("i", ids.sizes)
    at, ext = positions(axes), extents_of(axes)
    message = f"index out of bounds for dimension {dim} with size {x.sizes[dim]}"
    lets, checks = wrapped("g", ctx.read(ids, at, ext), x.sizes[dim], "RuntimeError", message, False)
    value = cast(ctx.read(src, _same_place(at, src), ext), meta.dtype) if isinstance(src, View) else const(src, meta.dtype)
    mode: StoreMode = "add" if "add" in node.func.name() else "set"
    base = _base(ctx, x)
    view = ctx.buffer(name or ctx.fresh(), meta)
    where = (*at[:dim], index("g"), *at[dim + 1 :])
    ctx.nodes.append(Scatter(view.buffer, base, axes, where, value, mode, tuple(lets), tuple(checks), ctx.origin))
    return view


@ROWS.lowers("slice_scatter", complex="each part", moves=True)
def _slice_scatter(ctx: Context, node: Node, x: View, src: View, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    if 0 in src.sizes or 0 in x.sizes:
        return _copy(ctx, node, x)
    dim %= len(x.sizes)
    first, last = slice_bounds(ctx, x.sizes[dim], start, end)

    def value(at: Any, ext: Any) -> Expr:
        a = at[dim]
        inside = [op("ge", index_value(a), const(first, "int64"))] if first else []
        if not known_order(x.sizes[dim], last):
            inside.append(op("lt", index_value(a), const(last, "int64")))
        if step != 1:
            inside.append(op("eq", index_value(mod(a - first, step, ext)), const(0, "int64")))
        return _inside(ctx, x, src, at, (*at[:dim], floordiv(a - first, step, ext), *at[dim + 1 :]), inside, ext)

    return ctx.pointwise(node.results[0], _meta(ctx, node), value)


@ROWS.lowers("select_scatter", complex="each part", moves=True)
def _select_scatter(ctx: Context, node: Node, x: View, src: View, dim: int, at_: int) -> Any:
    dim %= len(x.sizes)
    at_ %= x.sizes[dim]

    def value(at: Any, ext: Any) -> Expr:
        inside = [op("eq", index_value(at[dim]), const(at_, "int64"))]
        return _inside(ctx, x, src, at, (*at[:dim], *at[dim + 1 :]), inside, ext)

    return ctx.pointwise(node.results[0], _meta(ctx, node), value)


def _inside(ctx: Context, x: View, src: View, at: Any, there: Any, inside: Sequence[Expr], ext: Any) -> Expr:
    mask = all_of(inside)
    new = masked(ctx.read(src, there, ext), mask, const(0, src.dtype))
    return new if mask is None else op("where", mask, new, ctx.read(x, at, ext))


def _copy(ctx: Context, node: Node, x: View) -> View:
    return ctx.pointwise(node.results[0], _meta(ctx, node), lambda at, ext: ctx.read(x, at, ext))


@ROWS.lowers("index_fill.int_Scalar index_fill.int_Tensor index_copy index_add", moves=True)
@on_vectors
def _index_write(ctx: Context, node: Node, x: View, dim: int, ids: View, src: Any, *, alpha: Any = 1) -> Any:
    kind = node.func.name().split("_")[-1] if "fill" not in node.func.name() else "fill"
    meta = _meta(ctx, node)
    ids = ids if ids.sizes else reshape(ids, (1,))
    if (
        isinstance(src, complex)
        or (kind == "add" and meta.dtype not in SUPPORTED)
        or (kind == "copy" and len(src.sizes) != len(x.sizes))
        or (alpha != 1 and meta.dtype not in FLOATS + INTEGERS)
    ):
        return NotImplemented
    if 0 in ids.sizes:
        return _copy(ctx, node, x)
    if 0 in x.sizes:
        return NotImplemented
    dim %= len(x.sizes)
    size = x.sizes[dim]
    axes = named_axes("i", (*x.sizes[:dim], ids.sizes[0], *x.sizes[dim + 1 :]))
    at, ext = positions(axes), extents_of(axes)
    negative = kind == "fill"
    error = "RuntimeError" if kind == "add" else "IndexError"
    message = {"add": "index out of range in self", "fill": f"index out of range in self, dimension {dim} with size {size}"}.get(
        kind, f"index_copy_(): index out of bounds for size {size}"
    )
    lets, checks = wrapped("g", ctx.read(ids, at[dim : dim + 1], ext), size, error, message, negative)
    value = const(src, meta.dtype) if not isinstance(src, View) else cast(ctx.read(src, _same_place(at, src), ext), meta.dtype)
    if alpha != 1:
        value = cast(op("mul", cast(value, wide(meta.dtype)), const(alpha, wide(meta.dtype))), meta.dtype)
    base = _base(ctx, x)
    view = ctx.buffer(node.results[0] or ctx.fresh(), meta)
    where = (*at[:dim], index("g"), *at[dim + 1 :])
    mode: StoreMode = "add" if kind == "add" else "set"
    ctx.nodes.append(Scatter(view.buffer, base, axes, where, value, mode, tuple(lets), tuple(checks), ctx.origin))
    return view


def _same_place(at: Sequence[Index], src: View) -> Sequence[Index]:
    """``at`` in a source that may have a single element and no dimensions, or only one."""
    return at if len(src.sizes) == len(at) else [ZERO] * len(src.sizes)


ROWS.calls("masked_scatter", in_place="aten::masked_scatter_")


@ROWS.lowers("index_put", moves=True, in_place="aten::index_put_")
@ROWS.lowers("_index_put_impl", moves=True)
def _index_put(ctx: Context, node: Node, x: View, ids: Sequence[View | None], src: View, accumulate: bool = False) -> Any:
    meta = _meta(ctx, node)
    if accumulate and meta.dtype not in SUPPORTED:
        return NotImplemented
    given = [k for k, i in enumerate(ids) if i is not None]
    tensors: list[View] = [i for i in ids if i is not None]
    if len(tensors) == 1 and tensors[0].dtype == "bool" and all(n == 1 for n in src.sizes) and 0 not in x.sizes:
        return _masked_put(ctx, node, x, tensors[0], given[0], src, accumulate)
    if 0 in x.sizes or 0 in src.sizes or not tensors or any(i.dtype not in ("int64", "int32") or 0 in i.sizes for i in tensors):
        return NotImplemented
    rank, first = max(len(t.sizes) for t in tensors), given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    block = [max(t.sizes[len(t.sizes) - rank + k] for t in tensors if len(t.sizes) - rank + k >= 0) for k in range(rank)]
    rest = [n for d, n in enumerate(x.sizes) if d not in given]
    axes = named_axes("i", (*rest[:first], *block, *rest[first:]))
    at, ext = positions(axes), extents_of(axes)
    lets: list[Let] = []
    checks: list[Check] = []
    left, named = [*at[:first], *at[first + rank :]], dict(zip(given, tensors, strict=True))
    where: list[Index] = []
    for d, size in enumerate(x.sizes):
        if d not in named:
            where.append(left.pop(0))
            continue
        message = f"index is out of bounds for dimension {d} with size {size}"
        more, bounds = wrapped(f"g{d}", ctx.load_broadcast(named[d], at[first : first + rank], ext), size, "IndexError", message, True)
        lets, checks = lets + more, checks + bounds
        where.append(index(f"g{d}"))
    value = cast(ctx.load_broadcast(src, at, ext), meta.dtype)
    base = _base(ctx, x)
    view = ctx.buffer(node.results[0] or ctx.fresh(), meta)
    mode: StoreMode = "add" if accumulate else "set"
    ctx.nodes.append(Scatter(view.buffer, base, axes, tuple(where), value, mode, tuple(lets), tuple(checks), ctx.origin))
    return view


def _masked_put(ctx: Context, node: Node, x: View, mask: View, first: int, src: View, accumulate: bool) -> View:
    """One value wherever ``mask``, over the dimensions from ``first`` on, holds."""
    meta = _meta(ctx, node)

    def value(at: Any, ext: Any) -> Expr:
        new = cast(ctx.load(src, [ZERO] * len(src.sizes), ext), meta.dtype)
        old: Expr = ctx.read(x, at, ext)
        if accumulate:
            dtype = wide(meta.dtype)
            total = op("logical_or" if dtype == "bool" else "add", cast(old, dtype), cast(new, dtype))
            new = cast(total, meta.dtype)
        return op("where", ctx.load(mask, at[first : first + len(mask.sizes)], ext), new, old)

    return ctx.pointwise(node.results[0], meta, value)


# ---- putting together ----------------------------------------------------------------------------------------------


@ROWS.lowers("cat", complex="each part", any_layout=True, moves=True)
def _cat(ctx: Context, node: Node, tensors: Sequence[View], dim: int = 0) -> Any:
    meta = _meta(ctx, node)
    parts = [t for t in tensors if t.sizes != (0,) and 0 not in t.sizes]
    if not parts:
        return NotImplemented
    dim %= len(meta.sizes)
    return _joined(ctx, node, [(t, t.sizes[dim], dim, True) for t in parts])


@ROWS.lowers("stack", complex="each part", moves=True)
def _stack(ctx: Context, node: Node, tensors: Sequence[View], dim: int = 0) -> Any:
    meta = _meta(ctx, node)
    if 0 in meta.sizes:
        return NotImplemented
    return _joined(ctx, node, [(t, 1, dim % len(meta.sizes), False) for t in tensors])


_MOST_CHOICES = 16
"""Parts that are chosen from at each position; of more, groups are put together first."""


def _joined(ctx: Context, node: Node, parts: Sequence[tuple[View, int, int, bool]]) -> View:
    meta = _meta(ctx, node)
    if len(parts) > _MOST_CHOICES:
        return _joined(ctx, node, _grouped(ctx, node, parts))
    return _chosen(ctx, node.results[0], meta, parts)


def _grouped(ctx: Context, node: Node, parts: Sequence[tuple[View, int, int, bool]]) -> list[tuple[View, int, int, bool]]:
    meta, dim, out = _meta(ctx, node), parts[0][2], []
    size = max(-(-len(parts) // _MOST_CHOICES), 2)
    for k in range(0, len(parts), size):
        group = parts[k : k + size]
        length = sum(p[1] for p in group)
        sizes = (*meta.sizes[:dim], length, *meta.sizes[dim + 1 :])
        out.append((_chosen(ctx, None, meta.contiguous(sizes), group), length, dim, True))
    return out


def _chosen(ctx: Context, name: str | None, meta: Meta, parts: Sequence[tuple[View, int, int, bool]]) -> View:
    """Each position from the part that it is in."""

    def value(at: Any, ext: Any) -> Expr:
        out: Expr | None = None
        end = meta.sizes[parts[0][2]]
        for part, size, dim, keep in reversed(parts):
            start = end - size
            there = (*at[:dim], at[dim] - start, *at[dim + 1 :]) if keep else (*at[:dim], *at[dim + 1 :])
            inside = [op("ge", index_value(at[dim]), const(start, "int64"))] if not known_order(start, 0) else []
            if not known_order(meta.sizes[dim], end):
                inside.append(op("lt", index_value(at[dim]), const(end, "int64")))
            mine = cast(masked(ctx.read(part, there, ext), all_of(inside), const(0, part.dtype)), meta.dtype)
            out = mine if out is None else op("where", op("lt", index_value(at[dim]), const(end, "int64")), mine, out)
            end = start
        assert out is not None
        return out

    return ctx.pointwise(name, meta, value)


@ROWS.lowers("repeat", complex="each part", moves=True)
def _repeat(ctx: Context, node: Node, x: View, repeats: Sequence[int]) -> Any:
    meta = _meta(ctx, node)
    lead = len(meta.sizes) - len(x.sizes)
    if 0 in meta.sizes:
        return NotImplemented

    def value(at: Any, ext: Any) -> Expr:
        return ctx.read(x, [ZERO if n == 1 else mod(at[lead + k], n, ext) for k, n in enumerate(x.sizes)], ext)

    return ctx.pointwise(node.results[0], meta, value)
