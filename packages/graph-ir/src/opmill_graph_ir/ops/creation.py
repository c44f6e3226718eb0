"""Tensors made from numbers and positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..capture.graph import Node
from ..loops.ir import Expr
from .context import Context, View
from .exprs import all_of, cast, const, index_value, known_order, op
from .records import Rows

ROWS = Rows(kind="creation", recompute="cheap")


def _fill(ctx: Context, node: Node, number: Any) -> Any:
    name = node.results[0]
    meta = ctx.metas[name or ""]
    if isinstance(number, complex):
        return NotImplemented
    return ctx.pointwise(name, meta, lambda at, ext: const(number, meta.dtype))


@ROWS.lowers("zeros zeros_like new_zeros _efficientzerotensor", moves=True)
def _zeros(ctx: Context, node: Node, *_: Any, **__: Any) -> Any:
    return _fill(ctx, node, 0)


@ROWS.lowers("ones ones_like new_ones", moves=True)
def _ones(ctx: Context, node: Node, *_: Any, **__: Any) -> Any:
    return _fill(ctx, node, 1)


@ROWS.lowers("empty.memory_format empty_like new_empty empty_strided new_empty_strided empty_permuted", recompute="never", moves=True)
def _empty(ctx: Context, node: Node, *_: Any, **__: Any) -> Any:
    name = node.results[0]
    return ctx.allocated(name, ctx.metas[name or ""])


@ROWS.lowers("full full_like fill.Scalar", moves=True)
def _full(ctx: Context, node: Node, _: Any, value: Any, number: Any = None, **__: Any) -> Any:
    return _fill(ctx, node, value)


@ROWS.lowers("scalar_tensor")
def _scalar(ctx: Context, node: Node, value: Any, **_: Any) -> Any:
    return _fill(ctx, node, value)


@ROWS.lowers("new_full", moves=True)
def _new_full(ctx: Context, node: Node, _: Any, __: Any, value: Any, **___: Any) -> Any:
    return _fill(ctx, node, value)


@ROWS.lowers("fill.Tensor", moves=True)
def _fill_tensor(ctx: Context, node: Node, x: View, value: View) -> Any:
    return ctx.pointwise(node.results[0], ctx.metas[node.results[0] or ""], lambda at, ext: ctx.read(value, (), ext))


@ROWS.lowers("eye eye.m")
def _eye(ctx: Context, node: Node, *_: Any, **__: Any) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    return ctx.pointwise(node.results[0], meta, lambda at, ext: cast(op("eq", index_value(at[0]), index_value(at[1])), meta.dtype))


@ROWS.lowers("tril triu", kind="other", complex="each part")
def _tri(ctx: Context, node: Node, x: View, diagonal: int = 0) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    lower = "tril" in node.func.name()

    def value(at: Any, ext: Any) -> Expr:
        inside = op("le" if lower else "ge", index_value(at[-1]), index_value(at[-2] + diagonal))
        return op("where", inside, ctx.read(x, at, ext), const(0, x.dtype))

    return ctx.pointwise(node.results[0], meta, value)


@ROWS.lowers("constant_pad_nd", kind="other", recompute="never", moves=True, any_layout=True)
def _pad(ctx: Context, node: Node, x: View, pad: Sequence[int], value: Any = 0) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    if isinstance(value, complex):
        return NotImplemented
    if 0 in x.sizes:
        return _fill(ctx, node, value)
    before = [0] * len(x.sizes)
    for k in range(len(pad) // 2):
        before[len(x.sizes) - 1 - k] = pad[2 * k]

    def body(at: Any, ext: Any) -> Expr:
        inside, position = [], []
        for k, (a, n) in enumerate(zip(at, x.sizes, strict=True)):
            if not known_order(before[k], 0):
                inside.append(op("ge", index_value(a), const(before[k], "int64")))
            if not known_order(meta.sizes[k], before[k] + n):
                inside.append(op("lt", index_value(a), const(before[k] + n, "int64")))
            position.append(a - before[k])
        read = ctx.read(x, position, ext)
        return masked(read, all_of(inside), const(value, x.dtype))

    return ctx.pointwise(node.results[0], meta, body)


def masked(read: Any, mask: Expr | None, other: Any) -> Any:
    """``read`` where ``mask`` holds; memory is not touched elsewhere."""
    return read if mask is None else type(read)(read.buffer, read.indices, read.dtype, mask, other)
