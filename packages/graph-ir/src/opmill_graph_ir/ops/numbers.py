"""Rows that are neither arithmetic nor activations: parts of floats, rounding to places, products of vectors."""

from __future__ import annotations

import math
from typing import Any

from ..capture.graph import Node
from ..loops.index import index, mod
from ..loops.ir import Expr, Op, Reduction, Ref
from .context import Context, View
from .exprs import FLOATS, INTEGERS, cast, const, op, wide
from .pointwise import lowering, row
from .records import Rows
from .views import reshape

ROWS = Rows()


def _c(x: Expr, value: float) -> Expr:
    return const(value, x.dtype)


row(ROWS, "nextafter", dtypes=("float32", "float64"), low=False)(lambda x, y: op("nextafter", x, y))


@row(ROWS, "angle", dtypes=FLOATS)
def _angle(x: Expr) -> Expr:
    return op("where", op("isnan", x), x, op("where", op("lt", x, _c(x, 0)), _c(x, math.pi), _c(x, 0)))


@row(ROWS, "ldexp.Tensor", dtypes=FLOATS, low=False)
def _ldexp(x: Expr, exponent: Expr) -> Expr:
    return op("mul", x, op("pow", _c(x, 2), exponent))


@row(ROWS, "round.decimals", dtypes=FLOATS)
def _round(x: Expr, *, decimals: int) -> Expr:
    """Half to even of the scaled number, as eager has it."""
    if not decimals:
        return op("round", x)
    scale = _c(x, 10.0 ** abs(decimals))
    up, down = ("mul", "div") if decimals > 0 else ("div", "mul")
    return op(down, op("round", op(up, x, scale)), scale)


@lowering(dtypes=FLOATS + INTEGERS)
def _addr_of(x: Expr, a: Expr, b: Expr, *, beta: Any = 1, alpha: Any = 1) -> Expr:
    product = op("mul", a if alpha == 1 else op("mul", _c(x, alpha), a), b)
    return product if beta == 0 else op("add", x if beta == 1 else op("mul", _c(x, beta), x), product)


@ROWS.lowers("addr")
def _addr(ctx: Context, node: Node, x: View, a: View, b: View, **factors: Any) -> Any:
    return _addr_of(ctx, node, x, reshape(a, (*a.sizes, 1)), b, **factors)


# ---- the parts of a float --------------------------------------------------------------------------------------------------

_BITS = {"float32": ("int32", 23, 8), "float64": ("int64", 52, 11)}
"""The integer of the same width, bits of the mantissa and of the exponent."""


@ROWS.lowers("frexp.Tensor")
def _frexp(ctx: Context, node: Node, x: View) -> Any:
    dtype = wide(x.dtype)
    if dtype not in _BITS:
        return NotImplemented
    integer, mantissa, exponent = _BITS[dtype]
    most = (1 << exponent) - 1
    half = most // 2 - 1

    def parts(at: Any, ext: Any) -> tuple[Expr, Expr]:
        value = ctx.load(x, at, ext)
        small = op("lt", op("abs", value), const(2.0**-half, dtype))
        normal = op(
            "where", small, op("mul", value, const(2.0 ** (mantissa + 1), dtype)), value
        )  # subnormal numbers have no exponent of their own
        bits: Expr = Op("bitcast", (normal,), integer)
        raw = op("bitand", op("shr", bits, const(mantissa, integer)), const(most, integer))
        keeps = op("logical_or", op("eq", value, const(0, dtype)), op("eq", raw, const(most, integer)))
        kept = op("bitand", bits, const(~(most << mantissa), integer))
        fraction: Expr = Op("bitcast", (op("bitor", kept, const(half << mantissa, integer)),), dtype)
        shift = op("where", small, const(half + mantissa + 1, integer), const(half, integer))
        return op("where", keeps, value, fraction), op("where", keeps, const(0, integer), op("sub", raw, shift))

    def part(k: int) -> View:
        meta = ctx.metas[node.results[k] or ""]
        return ctx.pointwise(node.results[k], meta, lambda at, ext: cast(parts(at, ext)[k], meta.dtype))

    return [part(0), part(1)]


# ---- products of vectors ---------------------------------------------------------------------------------------------------


@ROWS.lowers("dot vdot")
def _dot(ctx: Context, node: Node, a: View, b: View) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    dtype = wide(meta.dtype)
    if dtype not in FLOATS + INTEGERS:
        return NotImplemented
    if 0 in a.sizes:
        return ctx.pointwise(node.results[0], meta, lambda at, ext: const(0, dtype))

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        product = op("mul", ctx.load(a, inner, ext), ctx.load(b, inner, ext))
        return [Reduction(("a",), "sum", product, dtype)], [Ref("a", dtype)]

    return ctx.reduce([(node.results[0], meta)], a.sizes, make)[0]


@ROWS.lowers("linalg_cross")
def _cross(ctx: Context, node: Node, a: View, b: View, *, dim: int = -1) -> Any:
    """Each component from the two that follow it, cyclically."""
    meta = ctx.metas[node.results[0] or ""]
    dtype, dim = wide(meta.dtype), dim % len(meta.sizes)
    if dtype not in FLOATS + INTEGERS or 0 in meta.sizes:
        return NotImplemented
    rank = len(meta.sizes)
    sides = [reshape(v, (1,) * (rank - len(v.sizes)) + tuple(v.sizes)) for v in (a, b)]

    def value(at: Any, ext: Any) -> Expr:
        def component(v: View, ahead: int) -> Expr:
            place = [index(0) if n == 1 else p for n, p in zip(v.sizes, at, strict=True)]
            place[dim] = mod(at[dim] + ahead, 3, ext)
            return ctx.load(v, place, ext)

        x, y = sides
        return op("sub", op("mul", component(x, 1), component(y, 2)), op("mul", component(x, 2), component(y, 1)))

    return ctx.pointwise(node.results[0], meta, value)
