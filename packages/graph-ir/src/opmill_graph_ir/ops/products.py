"""Matrix products that are better something else: of depth one a multiplication, on some processors one in float32, and loops where
measuring said so or one row meets a matrix."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Node
from ..loops.index import ONE, Index, index
from ..loops.ir import HALF, Reduction, Ref
from .context import Context, View
from .exprs import FLOATS, cast, op
from .half_products import in_float, is_slow
from .records import Rows

ROWS = Rows(kind="product")
_FEW = 4
"""Terms of a sum that are written out."""
_FEWEST = 16
"""Rows of a product below which converting the other operand costs more than it saves."""
_DIRECT = ("float32", "float64")
"""Types that processors multiply and sum as they are."""
_SHALLOWEST, _NARROWEST = 64, 16
"""Of a matrix, from which on a product with one row is a matter of reading it."""


@ROWS.lowers("mm", out="aten::mm.out")
@ROWS.lowers("bmm", out="aten::bmm.out")
def _product(ctx: Context, node: Node, first: View, second: View) -> Any:
    if _is_shallow(ctx, first):
        return _written_out(ctx, node, first, second)
    if node.results[0] in ctx.products or _is_one_row(ctx, first, second):
        return _summed(ctx, node, first, second)
    if _are_vectors(ctx, first, second):
        return _summed(ctx, node, first, second, wide=first.dtype)
    return _converted(ctx, node, first)


@ROWS.lowers("mm.dtype", out="aten::mm.dtype_out")
def _wide(ctx: Context, node: Node, first: View, second: View, dtype: Any) -> Any:
    return NotImplemented


@ROWS.lowers("_int_mm", out="aten::_int_mm.out")
def _of_bytes(ctx: Context, node: Node, first: View, second: View) -> Any:
    """Exact in any order: sums of integers wrap."""
    return _summed(ctx, node, first, second, wide="int32") if node.results[0] in ctx.products else NotImplemented


def _is_one_row(ctx: Context, first: View, second: View) -> bool:
    """Whether one row meets a matrix of half precision on a GPU that lies along the sums or across them: as fast as memory is as a loop,
    and what follows is done on the way. On an H200 a row of 2,048 takes 3.9 us with a square matrix, 6.0 as an operator of torch's; one
    of 8,192 10.9 instead of 15.3."""
    if first.dtype not in HALF or second.dtype != first.dtype or len(second.sizes) != 2 or ctx.exact:
        return False
    rows, depth, columns = first.sizes[0], first.sizes[-1], second.sizes[-1]
    if not all(type(n) is int for n in (rows, depth, columns)) or rows != 1 or depth < _SHALLOWEST or columns < _NARROWEST:
        return False
    laid = ctx.geometry(second)
    return traits_of(ctx.buffers[second.buffer].device).grid and laid is not None and ONE in laid[0]


def _are_vectors(ctx: Context, first: View, second: View) -> bool:
    """Whether each matrix of a batch meets one vector, on a processor: libraries are made for matrices (on two cores, 8 products of
    512 x 64 take 268 us as an operator of torch, 15 us as loops; 4 of 1,024 x 1,024 4.9 and 0.9 ms), and what follows is fused."""
    if first.dtype not in _DIRECT or second.dtype != first.dtype or len(first.sizes) != 3 or ctx.exact:
        return False
    if first.sizes[0] == 1 or first.sizes[-1] == 0:
        return False
    return 1 in (first.sizes[-2], second.sizes[-1]) and not traits_of(ctx.buffers[first.buffer].device).grid


def _summed(ctx: Context, node: Node, first: View, second: View, addend: View | None = None, wide: str = "") -> View:
    """As loops; the sum with ``addend`` is of what is not rounded yet. ``wide``: what both are converted to before, and summed in."""

    def make(at: Any, inner: Any, extents: Any) -> Any:
        [k], batch = inner, at[:-2]
        a, b = ctx.load(first, (*batch, at[-2], k), extents), ctx.load(second, (*batch, k, at[-1]), extents)
        value = op("mul", cast(a, wide), cast(b, wide)) if wide else op("mul", a, b)
        return [Reduction(("total",), "sum", value, wide or "float32")], [Ref("total", wide or "float32")]

    result = node.results[0] or ""
    meta = ctx.metas[result]
    [total] = ctx.reduce([(result, meta) if addend is None else (None, replace(meta, dtype=wide or "float32"))], [first.sizes[-1]], make)
    if ctx.products.get(result):
        ctx.computing.add(total.buffer)
    if addend is None:
        return total
    return ctx.pointwise(result, meta, lambda at, ext: op("add", ctx.load(total, at, ext), ctx.load_broadcast(addend, at, ext)))


def _is_shallow(ctx: Context, first: View) -> bool:
    """Whether the sums have one term, or so few that writing them out costs less than another pass over what they give: coordinates that
    meet a layer of a network, affine transformations of points. A library's product is then a matter of memory, and cannot be fused."""
    depth = index(first.sizes[-1])
    if first.dtype not in FLOATS or depth == ONE:
        return first.dtype in FLOATS
    few = depth.constant is not None and 1 < depth.constant <= _FEW
    return few and not ctx.exact and traits_of(ctx.buffers[first.buffer].device).grid


def _written_out(ctx: Context, node: Node, first: View, second: View, addend: View | None = None) -> View:
    """The terms, added one by one, at each element. Angles of rotary embeddings and gradients of one row are products of depth one: what
    reads them can be fused, and a call would cost more than the rest."""
    result, depth = node.results[0] or "", index(first.sizes[-1]).constant or 1

    def value(at: Any, extents: Any) -> Any:
        batch = at[:-2]
        rows = [ctx.load(first, (*batch, at[-2], index(k)), extents) for k in range(depth)]
        columns = [ctx.load(second, (*batch, index(k), at[-1]), extents) for k in range(depth)]
        terms = [op("mul", a, b) for a, b in zip(rows, columns, strict=True)]
        terms += [] if addend is None else [ctx.load_broadcast(addend, at, extents)]
        return functools.reduce(lambda total, term: op("add", total, term), terms)

    return ctx.pointwise(result, ctx.metas[result], value)


@ROWS.lowers("addmm", out="aten::addmm.out")
@ROWS.lowers("baddbmm", out="aten::baddbmm.out")
def _with_addend(ctx: Context, node: Node, addend: View, first: View, second: View, **factors: Any) -> Any:
    result, plain = node.results[0], all(f == 1 for f in factors.values())
    if plain and _is_shallow(ctx, first):
        return _written_out(ctx, node, first, second, addend)
    wanted = result in ctx.products or (len(first.sizes) == 2 and _is_one_row(ctx, first, second))
    if wanted and plain:
        return _summed(ctx, node, first, second, addend)
    if plain and _are_vectors(ctx, first, second):
        return _summed(ctx, node, first, second, addend, wide=first.dtype)
    return _converted(ctx, node, first)


def _converted(ctx: Context, node: Node, first: Any) -> Any:
    if not isinstance(first, View) or not is_slow(ctx, first) or 0 in ctx.metas[node.results[0] or ""].sizes or 0 in first.sizes:
        return NotImplemented
    rows: Any = first.sizes[-2]
    return in_float(ctx, node) if type(rows) is Index or rows >= _FEWEST else NotImplemented
