"""Norms of differences, rows kept to a norm."""

from __future__ import annotations

from typing import Any

from ..capture.graph import Meta, Node
from ..loops.index import index
from ..loops.ir import Let, Reduction, Ref
from ..lowered import Reduce
from .context import FEW, Context, View, extents_of, named_axes, positions
from .exprs import FLOATS, cast, const, index_value, op, wide
from .indexing import wrapped
from .norms import normed, powers
from .records import Rows
from .reductions import full_position
from .scatters import written

ROWS = Rows()
_LONG = 8
"""Elements of a row up to which differences are as quick as a product."""


def _meta(ctx: Context, node: Node) -> Meta:
    return ctx.metas[node.results[0] or ""]


@ROWS.lowers("norm.ScalarOpt_dim norm.Scalar")
def _norm(ctx: Context, node: Node, x: View, p: Any = None, dim: Any = None, keepdim: bool = False) -> Any:
    return normed(ctx, node, x, 2.0 if p is None else p, dim, keepdim)


@ROWS.lowers("dist")
def _dist(ctx: Context, node: Node, x: View, y: View, p: Any = 2) -> Any:
    meta = _meta(ctx, node)
    dtype = wide(meta.dtype)
    rank = max(len(x.sizes), len(y.sizes), 1)
    padded = [(1,) * (rank - len(v.sizes)) + tuple(v.sizes) for v in (x, y)]
    sizes = [b if a == 1 else a for a, b in zip(*padded, strict=True)]
    if meta.dtype not in FLOATS or 0 in sizes or not sizes:
        return NotImplemented
    kind, prepare, finish = powers(float(p), dtype)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        a, b = (cast(ctx.load_broadcast(v, inner, ext), dtype) for v in (x, y))
        return [Reduction(("a",), kind, prepare(op("sub", a, b)), dtype)], [finish(Ref("a", dtype))]

    return ctx.reduce([(node.results[0], meta)], sizes, make)[0]


def _between(ctx: Context, node: Node, x: View, y: View, p: float, pair: Any) -> Any:
    """Distances of rows of ``x`` and ``y``, which ``pair(outer position, extents)`` chooses."""
    meta = _meta(ctx, node)
    dtype = wide(meta.dtype)
    if meta.dtype not in FLOATS or 0 in x.sizes or 0 in y.sizes or 0 in meta.sizes:
        return NotImplemented
    kind, prepare, finish = powers(p, dtype)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        a, b = (cast(ctx.load_broadcast(v, (*row, inner[0]), ext), dtype) for v, row in zip((x, y), pair(outer, ext), strict=True))
        return [Reduction(("a",), kind, prepare(op("sub", a, b)), dtype)], [finish(Ref("a", dtype))]

    return ctx.reduce([(node.results[0], meta)], [x.sizes[-1]], make)[0]


@ROWS.lowers("_cdist_forward")
def _cdist(ctx: Context, node: Node, x: View, y: View, p: float, mode: int | None) -> Any:
    return _between(ctx, node, x, y, p, lambda at, ext: ((*at[:-2], at[-2]), (*at[:-2], at[-1])))


@ROWS.lowers("_euclidean_dist")
def _euclidean(ctx: Context, node: Node, x: View, y: View) -> Any:
    """By differences: nearer to the truth than eager's matrix product. On processors that one is up to eight times as fast where
    rows are long."""
    if x.sizes[-1] > _LONG and ctx.on_processor(x, FEW):
        return NotImplemented
    return _between(ctx, node, x, y, 2.0, lambda at, ext: ((*at[:-2], at[-2]), (*at[:-2], at[-1])))


@ROWS.lowers("renorm")
def _renorm(ctx: Context, node: Node, x: View, p: Any, dim: int, most: Any) -> Any:
    """Slices of ``dim`` whose norm is above ``most`` are scaled down to it."""
    meta = _meta(ctx, node)
    if x.dtype not in ("float32", "float64") or 0 in x.sizes:
        return NotImplemented
    dtype, dim = x.dtype, dim % len(x.sizes)
    dims = [d for d in range(len(x.sizes)) if d != dim]
    kind, prepare, finish = powers(float(p), dtype)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        value = prepare(ctx.load(x, full_position(x, dims, outer, inner, False), ext))
        n = finish(Ref("a", dtype))
        scale = op("div", const(most, dtype), op("add", n, const(1e-7, dtype)))
        return [Reduction(("a",), kind, value, dtype)], [op("where", op("gt", n, const(most, dtype)), scale, const(1, dtype))]

    factors = ctx.reduce([(None, meta.contiguous((x.sizes[dim],)))], [x.sizes[d] for d in dims], make)[0]
    return ctx.pointwise(node.results[0], meta, lambda at, ext: op("mul", ctx.load(x, at, ext), ctx.load(factors, at[dim : dim + 1], ext)))


@ROWS.lowers("_pdist_forward")
def _pdist(ctx: Context, node: Node, x: View, p: float = 2.0) -> Any:
    """Pairs of rows in the order (0, 1), (0, 2), ..: the first of pair k solves a quadratic equation."""
    meta, n = _meta(ctx, node), x.sizes[0]
    if x.dtype not in ("float32", "float64") or 0 in x.sizes or 0 in meta.sizes or ctx.on_processor(x, FEW):
        return NotImplemented  # torch's kernel goes from pair to pair
    kind, prepare, finish = powers(p, x.dtype)
    outer, inner = named_axes("i", meta.sizes), named_axes("r", x.sizes[1:])
    ext, wide_ = extents_of(outer) | extents_of(inner), "float64"
    k, half = index_value(positions(outer)[0]), const(n - 0.5, wide_)
    left = op("sub", op("sub", op("mul", half, half), op("mul", const(2, wide_), cast(k, wide_))), const(1, wide_))
    first = Ref("g", "int64")
    skipped = op(
        "sub", op("mul", const(n, "int64"), first), op("floordiv", op("mul", first, op("add", first, const(1, "int64"))), const(2, "int64"))
    )
    second = op("add", op("add", op("sub", k, skipped), first), const(1, "int64"))
    lets = (Let("g", cast(op("sub", half, op("sqrt", left)), "int64")), Let("h", second))
    a, b = (ctx.read(x, (index(name), *positions(inner)), ext) for name in "gh")
    view = ctx.buffer(node.results[0] or ctx.fresh(), meta)
    total = Reduction(("a",), kind, prepare(op("sub", a, b)), x.dtype)
    ctx.nodes.append(Reduce((view.buffer,), outer, inner, (total,), (finish(Ref("a", x.dtype)),), lets, (), ctx.origin))
    return view


@ROWS.lowers("embedding_renorm")
def _embedding_renorm(ctx: Context, node: Node, weight: View, ids: View, most: float, p: float) -> Any:
    """Rows that are named and longer than ``most`` are scaled down to it."""
    meta = _meta(ctx, node)
    if weight.dtype not in ("float32", "float64") or 0 in weight.sizes or 0 in ids.sizes:
        return NotImplemented
    dtype, rows = weight.dtype, weight.sizes[0]
    axes = named_axes("i", ids.sizes)
    at, ext = positions(axes), extents_of(axes)
    lets, checks = wrapped("g", ctx.read(ids, at, ext), rows, "IndexError", "index out of range in self", False)
    named = written(ctx, None, meta.contiguous((rows,)), None, axes, [index("g")], const(1, dtype), "set", lets, checks)
    kind, prepare, finish = powers(p, dtype)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        n = finish(Ref("a", dtype))
        scale = op("div", const(most, dtype), op("add", n, const(1e-7, dtype)))
        long = op("logical_and", op("gt", n, const(most, dtype)), op("ne", ctx.read(named, outer, ext), const(0, dtype)))
        value = prepare(ctx.load(weight, (outer[0], *inner), ext))
        return [Reduction(("a",), kind, value, dtype)], [op("where", long, scale, const(1, dtype))]

    factors = ctx.reduce([(None, meta.contiguous((rows,)))], weight.sizes[1:], make)[0]
    return ctx.pointwise(node.results[0], meta, lambda at, ext: op("mul", ctx.load(weight, at, ext), ctx.load(factors, at[:1], ext)))
