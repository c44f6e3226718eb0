"""Looking values up: in sorted boundaries by bisection, among a few by comparing with all."""

from __future__ import annotations

import math
from typing import Any

from ..capture.graph import Node
from ..loops.index import index
from ..loops.ir import Expr, Let, Reduction, Ref
from .context import Context, View
from .exprs import FLOATS, INTEGERS, cast, const, op, wide
from .indexing import gathered
from .pointwise import promoted
from .records import Rows
from .views import reshape

ROWS = Rows()


def _bisected(ctx: Context, node: Node, sequence: View, value: Any, right: bool, sorter: View | None = None) -> Any:
    """The first place in the last dimension of ``sequence`` that is not below ``value`` (``right``: that is above it). NaN is the largest.

    Each step of the bisection is a let that the next one's load depends on: there are log2(n) + 1 of them."""
    n, rank = sequence.sizes[-1], len(sequence.sizes)
    dtype = wide(promoted(sequence, value))
    if dtype not in FLOATS + INTEGERS or 0 in sequence.sizes:
        return NotImplemented
    many = rank > 1

    def make(at: Any, ext: Any) -> Any:
        wanted = cast(ctx.load(value, at, ext), dtype) if isinstance(value, View) else const(value, dtype)
        lets = [Let("wanted", wanted), Let("p0", const(0, "int64")), Let("e0", const(n, "int64"))]
        rows = at[: rank - 1] if many else ()

        def element(position: str) -> Expr:
            if sorter is None:
                return cast(ctx.load(sequence, (*rows, index(position)), ext), dtype)
            lets.append(Let(f"o{position}", ctx.read(sorter, (*rows, index(position)), ext)))
            return cast(ctx.load(sequence, (*rows, index(f"o{position}")), ext), dtype)

        steps = n.bit_length()
        for k in range(steps):
            low, end = Ref(f"p{k}", "int64"), Ref(f"e{k}", "int64")
            middle = op("floordiv", op("add", low, end), const(2, "int64"))
            lets.append(Let(f"m{k}", op("min", middle, const(n - 1, "int64"))))
            before = _before(element(f"m{k}"), Ref("wanted", dtype), right)
            lets.append(Let(f"b{k}", op("logical_and", op("lt", low, end), before)))
            lets.append(Let(f"p{k + 1}", op("where", Ref(f"b{k}", "bool"), op("add", Ref(f"m{k}", "int64"), const(1, "int64")), low)))
            lets.append(
                Let(f"e{k + 1}", op("where", Ref(f"b{k}", "bool"), end, op("where", op("lt", low, end), Ref(f"m{k}", "int64"), end)))
            )
        return Ref(f"p{steps}", "int64"), lets, []

    return gathered(ctx, node, make)


def _before(element: Expr, value: Expr, right: bool) -> Expr:
    """Whether the place that is looked for lies behind ``element``."""
    return op("logical_not", op("gt" if right else "ge", element, value))


@ROWS.lowers("bucketize.Tensor bucketize.Scalar", compares=True)
def _bucketize(ctx: Context, node: Node, x: Any, boundaries: View, *, out_int32: bool = False, right: bool = False) -> Any:
    if not boundaries.sizes[0]:
        return ctx.pointwise(node.results[0], ctx.metas[node.results[0] or ""], lambda at, ext: const(0, "int64"))
    return _bisected(ctx, node, boundaries, x, right)


@ROWS.lowers("searchsorted.Tensor searchsorted.Scalar", compares=True)
def _searchsorted(
    ctx: Context,
    node: Node,
    sequence: View,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    right = right or side == "right"
    if not sequence.sizes:
        return NotImplemented
    if isinstance(x, View) and not x.sizes and len(sequence.sizes) > 1:
        return NotImplemented
    return _bisected(ctx, node, sequence, x, right, sorter)


@ROWS.lowers("isin.Tensor_Tensor isin.Tensor_Scalar isin.Scalar_Tensor", compares=True)
def _isin(ctx: Context, node: Node, x: Any, test: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """Each element with each of the test's; eager sorts where these are many."""
    name, meta = node.results[0], ctx.metas[node.results[0] or ""]
    count = math.prod(test.sizes) if isinstance(test, View) else 1
    elements = math.prod(x.sizes) if isinstance(x, View) else 1
    dtype = wide(promoted(x, test))
    if dtype not in (*FLOATS, *INTEGERS) or not elements or count > max(64, 10 * elements**0.145):
        return NotImplemented
    if not count:
        return ctx.pointwise(name, meta, lambda at, ext: const(invert, "bool"))

    def load(value: Any, at: Any, ext: Any) -> Expr:
        return cast(ctx.load(value, at, ext), dtype) if isinstance(value, View) else const(value, dtype)

    def make(outer: Any, inner: Any, ext: Any) -> Any:
        mine = load(x, outer, ext)
        other = load(reshape(test, (count,)), inner, ext) if isinstance(test, View) else load(test, (), ext)
        found = Ref("a", "bool")
        return [Reduction(("a",), "any", op("eq", mine, other), "bool")], [op("logical_not", found) if invert else found]

    return ctx.reduce([(name, meta)], [count], make)[0]


__all__ = ["ROWS"]
