"""Running sums, products, maxima and log-sums as scans of the loop IR."""

from __future__ import annotations

from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Meta, Node
from ..loops.index import index
from ..loops.ir import Ref, Scan
from .context import Context, View
from .creation import masked
from .exprs import FLOATS, cast, const, index_value, op, wide
from .records import Rows
from .views import on_vectors

ROWS = Rows()
_KIND = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logaddexp"}


def _result(ctx: Context, node: Node, k: int = 0) -> tuple[str | None, Meta]:
    return node.results[k], ctx.metas[node.results[k] or ""]


def _kept(meta: Meta) -> str:
    """The type that running values are kept in: float64 for float32 on CPUs, as in eager."""
    dtype = wide(meta.dtype)
    return "float64" if meta.dtype == "float32" and traits_of(meta.device).processor else dtype


@ROWS.lowers("cumsum", complex="each part")
@ROWS.lowers("cumprod logcumsumexp")
@on_vectors
def _running(ctx: Context, node: Node, x: View, dim: int, *, dtype: Any = None) -> Any:
    name, meta = _result(ctx, node)
    if 0 in x.sizes or meta.dtype == "bool":
        return NotImplemented
    kind, kept = _KIND[node.func.name().removeprefix("aten::")], _kept(meta)

    def make(at: Any, ext: Any) -> Any:
        value = cast(cast(ctx.load(x, at, ext), meta.dtype), kept)  # converted to the result's type before anything is added
        return [Scan(("a",), kind, (value,), kept)], [Ref("a", kept)]

    return ctx.cumulate([(name, meta)], dim % len(x.sizes), make)[0]


@ROWS.lowers("cummax cummin", chooses=True)
@on_vectors
def _extreme(ctx: Context, node: Node, x: View, dim: int) -> Any:
    kind = {"cummax": "argmax", "cummin": "argmin"}[node.func.name().removeprefix("aten::")]
    if 0 in x.sizes:
        return NotImplemented
    kept = wide(x.dtype).replace("bool", "uint8")

    def make(at: Any, ext: Any) -> Any:
        return [Scan(("a", "b"), kind, (cast(ctx.load(x, at, ext), kept),), kept)], [Ref("a", kept), Ref("b", "int64")]

    return ctx.cumulate([_result(ctx, node, 0), _result(ctx, node, 1)], dim % len(x.sizes), make)


@ROWS.lowers("cumprod_backward")
def _gradient_of_products(ctx: Context, node: Node, grad: View, x: View, dim: int, products: View) -> Any:
    """Of x[k]: the product of those before it, times ``s[k] = grad[k] + x[k + 1] * s[k + 1]``. Nothing is divided: zeros are as others."""
    name, meta = _result(ctx, node)
    sizes = x.sizes
    if 0 in sizes or not sizes or {v.dtype for v in (grad, x, products)} != {meta.dtype} or meta.dtype not in FLOATS:
        return NotImplemented
    dim %= len(sizes)
    kept = _kept(meta)

    def make(at: Any, ext: Any) -> Any:
        inside = op("lt", index_value(at[dim]), index_value(index(sizes[dim]) - 1))
        following = masked(ctx.read(x, (*at[:dim], at[dim] + 1, *at[dim + 1 :]), ext), inside, const(0, x.dtype))
        gradient = cast(cast(ctx.load(grad, at, ext), meta.dtype), kept)
        later = op("gt", index_value(at[dim]), const(0, "int64"))
        before = masked(ctx.read(products, (*at[:dim], at[dim] - 1, *at[dim + 1 :]), ext), later, const(1, products.dtype))
        scan = Scan(("a",), "affine", (cast(following, kept), gradient), kept, reverse=True)
        return [scan], [op("mul", Ref("a", kept), cast(before, kept))]

    return ctx.cumulate([(name, meta)], dim, make)[0]
