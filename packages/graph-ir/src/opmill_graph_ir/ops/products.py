"""Matrix products that are better something else: of depth one a multiplication, on some processors one in float32."""

from __future__ import annotations

from typing import Any

from ..capture.graph import Node
from ..loops.index import ONE, ZERO, Index, index
from .context import Context, View
from .exprs import FLOATS, op
from .half_products import in_float, is_slow
from .rows import Rows

ROWS = Rows()
_FEWEST = 16
"""Rows of a product below which converting the other operand costs more than it saves."""


@ROWS.lowers("mm bmm")
def _product(ctx: Context, node: Node, first: View, second: View) -> Any:
    if first.dtype in FLOATS and index(first.sizes[-1]) == ONE:
        return _outer(ctx, node, first, second)
    return _converted(ctx, node, first)


def _outer(ctx: Context, node: Node, first: View, second: View) -> View:
    """Angles of rotary embeddings and gradients of one row are such: what reads them can be fused, and a call would cost more than the rest."""
    result = node.results[0] or ""

    def value(at: Any, extents: Any) -> Any:
        batch = at[:-2]
        return op("mul", ctx.load(first, (*batch, at[-2], ZERO), extents), ctx.load(second, (*batch, ZERO, at[-1]), extents))

    return ctx.pointwise(result, ctx.metas[result], value)


@ROWS.lowers("addmm baddbmm")
def _with_addend(ctx: Context, node: Node, _: View, first: View, *__: Any, **___: Any) -> Any:
    return _converted(ctx, node, first)


def _converted(ctx: Context, node: Node, first: Any) -> Any:
    if not isinstance(first, View) or not is_slow(ctx, first) or 0 in ctx.metas[node.results[0] or ""].sizes or 0 in first.sizes:
        return NotImplemented
    rows: Any = first.sizes[-2]
    return in_float(ctx, node) if type(rows) is Index or rows >= _FEWEST else NotImplemented
