"""Norms, log-sum-exp, counts and traces."""

from __future__ import annotations

import math
from typing import Any

from ..capture.graph import Meta, Node
from ..dense import contiguous
from ..loops.index import index
from ..loops.ir import Expr, Reduction, Ref
from .context import Context, View
from .exprs import FLOATS, INTEGERS, cast, const, op, wide
from .records import Rows
from .reductions import dims_of, full_position, reduced
from .views import on_vectors

ROWS = Rows()


@ROWS.lowers("logsumexp")
@on_vectors
def _logsumexp(ctx: Context, node: Node, x: View, dim: Any, keepdim: bool = False) -> Any:
    dtype, dims = wide(ctx.metas[node.results[0] or ""].dtype), dims_of(x, dim)
    if 0 in x.sizes:
        return ctx.pointwise(node.results[0], ctx.metas[node.results[0] or ""], lambda at, ext: const(-math.inf, dtype))
    sizes = tuple(1 if d in dims else n for d, n in enumerate(x.sizes))
    meta = Meta(dtype, sizes, contiguous(sizes), ctx.buffers[x.buffer].device)
    inner = [x.sizes[d] for d in dims]

    def biggest(outer: Any, loops: Any, ext: Any) -> Any:
        value = cast(ctx.load(x, full_position(x, dims, outer, loops, True), ext), dtype)
        top = Ref("a", dtype)
        return [Reduction(("a",), "max", value, dtype)], [op("where", op("isinf", top), const(0, dtype), top)]

    top = ctx.reduce([(None, meta)], inner, biggest)[0]
    name, out = node.results[0], ctx.metas[node.results[0] or ""]

    def make(outer: Any, loops: Any, ext: Any) -> Any:
        at = full_position(x, dims, outer, loops, keepdim)
        shift = ctx.load_broadcast(top, at, ext)
        outside = ctx.load(top, [index(0) if d in dims else p for d, p in enumerate(at)], ext)
        value = op("exp", op("sub", cast(ctx.load(x, at, ext), dtype), shift))
        return [Reduction(("a",), "sum", value, dtype)], [op("add", op("log", Ref("a", dtype)), outside)]

    return ctx.reduce([(name, out)], inner, make)[0]


def powers(p: float, dtype: str) -> tuple[str, Any, Any]:
    """How a norm of order ``p`` is reduced: the kind, what is done to an element, and to the result."""
    if p in (math.inf, -math.inf):
        return "max" if p > 0 else "min", lambda e: op("abs", e), lambda e: e
    if p == 0:
        return "sum", lambda e: cast(op("ne", e, const(0, dtype)), dtype), lambda e: e
    if p == 1:
        return "sum", lambda e: op("abs", e), lambda e: e
    if p == 2:
        return "sum", lambda e: op("mul", e, e), lambda e: op("sqrt", e)
    return "sum", lambda e: op("pow", op("abs", e), const(p, dtype)), lambda e: op("pow", e, const(1.0 / p, dtype))


@ROWS.lowers("linalg_vector_norm")
def _vector_norm(ctx: Context, node: Node, x: View, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return NotImplemented if dtype is not None else normed(ctx, node, x, ord, dim, keepdim)


def normed(ctx: Context, node: Node, x: View, p: Any, dim: Any, keepdim: bool) -> Any:
    """The norm of order ``p`` over dimensions."""
    compute = wide(ctx.metas[node.results[0] or ""].dtype)
    if compute not in FLOATS or x.dtype not in FLOATS or (0 in x.sizes and p < 0):
        return NotImplemented
    if 0 in x.sizes:
        return ctx.pointwise(node.results[0], ctx.metas[node.results[0] or ""], lambda at, ext: const(0, compute))
    alone = p != 0 and all(
        x.sizes[d] == 1 for d in dims_of(x, dim)
    )  # an element by itself is its norm, also where its power would overflow
    kind, prepare, finish = powers(1.0 if alone else float(p), compute)
    return reduced(ctx, node, x, dim, keepdim, kind, compute, prepare, lambda e, n: finish(e))


@ROWS.lowers("count_nonzero count_nonzero.dim_IntList")
def _count(ctx: Context, node: Node, x: View, dim: Any = None) -> Any:
    dtype = wide(x.dtype)

    def one(e: Expr) -> Expr:
        return cast(e if e.dtype == "bool" else op("ne", e, const(0, dtype)), "int64")

    return NotImplemented if 0 in x.sizes else reduced(ctx, node, x, dim, False, "sum", "int64", one, source=dtype)


@ROWS.lowers("nansum")
def _nansum(ctx: Context, node: Node, x: View, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    compute = wide(ctx.metas[node.results[0] or ""].dtype)
    if x.dtype not in FLOATS or compute not in FLOATS or 0 in x.sizes:
        return NotImplemented
    return reduced(ctx, node, x, dim, keepdim, "sum", compute, lambda e: op("where", op("isnan", e), const(0, compute), e))


@ROWS.lowers("trace", complex="each part")
def _trace(ctx: Context, node: Node, x: View) -> Any:
    n = min(x.sizes)
    meta = ctx.metas[node.results[0] or ""]
    dtype = wide(meta.dtype)
    if not n:
        return NotImplemented

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        return [Reduction(("a",), "sum", cast(ctx.load(x, (inner[0], inner[0]), ext), dtype), dtype)], [Ref("a", dtype)]

    return ctx.reduce([(node.results[0], meta)], [n], make)[0]


@ROWS.lowers("aminmax", chooses=True)
@on_vectors
def _aminmax(ctx: Context, node: Node, x: View, *, dim: Any = None, keepdim: bool = False) -> Any:
    dtype, dims = wide(x.dtype), dims_of(x, dim)
    if 0 in x.sizes or x.dtype not in FLOATS + INTEGERS:
        return NotImplemented

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        value = ctx.load(x, full_position(x, dims, outer, inner, keepdim), ext)
        both = [Reduction(("a",), "min", value, dtype), Reduction(("b",), "max", value, dtype)]
        return both, [Ref("a", dtype), Ref("b", dtype)]

    return ctx.reduce([(n, ctx.metas[n or ""]) for n in node.results], [x.sizes[d] for d in dims], make)
