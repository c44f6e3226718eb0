"""Sequences of numbers: steps between bounds, powers at such steps."""

from __future__ import annotations

import math
from typing import Any

from ..capture.graph import Node
from ..loops.index import Index
from ..loops.ir import Expr
from .context import Context, View
from .exprs import FLOATS, INTEGERS, cast, const, index_value, op, wide
from .records import Rows

ROWS = Rows(kind="creation")


def _number(ctx: Context, value: Any, dtype: str) -> Expr:
    """A bound, a number or a tensor of one element, in ``dtype``."""
    return cast(ctx.load(value, (), {}), dtype) if isinstance(value, View) else const(value, dtype)


@ROWS.lowers("linspace linspace.Tensor_Tensor linspace.Tensor_Scalar linspace.Scalar_Tensor")
def _linspace(ctx: Context, node: Node, start: Any, end: Any, steps: int, **_: Any) -> Any:
    """From both ends towards the middle, so that the last one is exact."""
    return _spaced(ctx, node, start, end, steps, lambda e: e)


@ROWS.lowers("logspace logspace.Tensor_Tensor logspace.Tensor_Scalar logspace.Scalar_Tensor")
def _logspace(ctx: Context, node: Node, start: Any, end: Any, steps: int, base: float = 10.0, **_: Any) -> Any:
    if ctx.metas[node.results[0] or ""].dtype in INTEGERS:
        return NotImplemented  # eager takes the power in float64 of steps in float32
    return _spaced(ctx, node, start, end, steps, lambda e: op("pow", const(base, e.dtype), e))


def _spaced(ctx: Context, node: Node, start: Any, end: Any, steps: int, finish: Any) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    dtype = wide(meta.dtype) if meta.dtype in FLOATS else "float32"
    if meta.dtype not in ("float32", "float64", "float16", "bfloat16") or any(isinstance(v, complex) for v in (start, end)):
        return NotImplemented
    if not steps:
        return NotImplemented
    first, last = (_number(ctx, v, dtype) for v in (start, end))
    if steps == 1:
        return ctx.pointwise(node.results[0], meta, lambda at, ext: finish(first))
    step = op("div", op("sub", last, first), const(steps - 1, dtype))

    def value(at: Any, ext: Any) -> Expr:
        i = index_value(at[0])
        low = op("add", first, op("mul", step, cast(i, dtype)))
        high = op("sub", last, op("mul", step, cast(index_value(-at[0] + (steps - 1)), dtype)))
        return finish(op("where", op("lt", i, const(steps // 2, "int64")), low, high))

    return ctx.pointwise(node.results[0], meta, value)


@ROWS.lowers("arange arange.start arange.start_step", recompute="cheap")
def _arange(ctx: Context, node: Node, *bounds: Any, **_: Any) -> Any:
    start, step = (bounds[0] if len(bounds) > 1 else 0), (bounds[2] if len(bounds) > 2 else 1)
    meta = ctx.metas[node.results[0] or ""]
    start, step = (int(v) if isinstance(v, bool) else v for v in (start, step))
    if any(isinstance(v, complex) for v in (start, step)) or meta.dtype not in INTEGERS + FLOATS:
        return NotImplemented
    if all(isinstance(v, (int, Index)) for v in (start, step)):
        return ctx.pointwise(node.results[0], meta, lambda at, ext: cast(index_value(at[0] * step + start), meta.dtype))
    dtype = "float64" if meta.dtype in FLOATS else "int64"
    if any(isinstance(v, Index) or not math.isfinite(v) for v in (start, step)):
        return NotImplemented
    first, by = (const(v, dtype) for v in (start, step))
    return ctx.pointwise(node.results[0], meta, lambda at, ext: op("add", first, op("mul", by, cast(index_value(at[0]), dtype))))
