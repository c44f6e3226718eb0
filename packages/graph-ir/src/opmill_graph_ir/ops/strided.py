"""Views by strides, blocks put on a diagonal, chunks put together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..capture.graph import Node
from ..loops.index import ZERO, Index
from ..loops.ir import Expr
from .context import Context, View, extents_of, named_axes, positions, view_axes
from .creation import masked
from .exprs import all_of, cast, const, index_value, op
from .records import Rows
from .scatters import unflattened, written
from .views import compose, reshape, sliced

ROWS = Rows()


def _is_contiguous(ctx: Context, x: View, name: str) -> bool:
    """Whether ``x`` is dense and row-major for its user."""
    strides, step = ctx.metas[name].strides, 1
    for n, s in reversed(list(zip(x.sizes, strides, strict=True))):
        if n != 1 and s != step:
            return False
        step *= n
    return True


def _flat_position(axes: Sequence[Index], strides: Sequence[Any]) -> Index:
    total = ZERO
    for a, s in zip(axes, strides, strict=True):
        total = total + a * s
    return total


@ROWS.lowers("as_strided", kind="view", complex="view", moves=True)
def _as_strided(ctx: Context, node: Node, x: View, sizes: Sequence[Any], strides: Sequence[Any]) -> Any:
    """Of a vector, which it does not leave: captured graphs have no others."""
    axes, extents = view_axes(sizes)
    return compose(x, sizes, [_flat_position(axes, strides)], extents)


@ROWS.lowers("as_strided_scatter", moves=True)
def _as_strided_scatter(ctx: Context, node: Node, x: View, src: View, sizes: Sequence[Any], strides: Sequence[Any]) -> Any:
    """Written by a view as above, or by windows of a tensor."""
    meta = ctx.metas[node.results[0] or ""]
    if 0 in x.sizes or not _is_contiguous(ctx, x, node.args[0].name):
        return NotImplemented
    if 0 in src.sizes:
        return ctx.pointwise(node.results[0], meta, lambda at, ext: ctx.read(x, at, ext))
    axes = named_axes("i", sizes)
    at, ext = positions(axes), extents_of(axes)
    where = unflattened(_flat_position(at, strides), x.sizes, ext)
    return written(ctx, node.results[0], meta, x, axes, where, cast(ctx.read(src, at, ext), meta.dtype))


@ROWS.lowers("narrow_copy", complex="each part")
def _narrow_copy(ctx: Context, node: Node, x: View, dim: int, start: int, length: int) -> Any:
    dim %= len(x.sizes)
    start = start + x.sizes[dim] if start < 0 else start
    view = sliced(x, dim, start, length)
    return ctx.pointwise(node.results[0], ctx.metas[node.results[0] or ""], lambda at, ext: ctx.read(view, at, ext))


@ROWS.lowers("block_diag")
def _block_diag(ctx: Context, node: Node, tensors: Sequence[View]) -> Any:
    meta = ctx.metas[node.results[0] or ""]
    blocks = [reshape(t, (1,) * (2 - len(t.sizes)) + t.sizes) for t in tensors]
    if 0 in meta.sizes or len(blocks) > 16:
        return NotImplemented

    def value(at: Any, ext: Any) -> Expr:
        out: Expr = const(0, meta.dtype)
        ends = [0, 0]
        for block in blocks:
            starts, ends = ends, [e + n for e, n in zip(ends, block.sizes, strict=True)]
            if 0 in block.sizes:
                continue
            inside = all_of(
                [op(o, index_value(at[d]), const(b, "int64")) for d in range(2) for o, b in (("ge", starts[d]), ("lt", ends[d])) if b != 0]
            )
            mine = masked(ctx.read(block, [at[d] - starts[d] for d in range(2)], ext), inside, const(0, block.dtype))
            assert inside is not None
            out = op("where", inside, cast(mine, meta.dtype), out)
        return out

    return ctx.pointwise(node.results[0], meta, value)


@ROWS.lowers("_chunk_cat")
def _chunk_cat(ctx: Context, node: Node, tensors: Sequence[View], dim: int, chunks: int) -> Any:
    """Each tensor, padded to a multiple of ``chunks`` along ``dim``, as (chunks, rest); these side by side."""
    meta = ctx.metas[node.results[0] or ""]
    if any(0 in t.sizes for t in tensors) or len(tensors) > 16:
        return NotImplemented
    dim %= len(tensors[0].sizes)

    def value(at: Any, ext: Any) -> Expr:
        out: Expr | None = None
        start = 0
        for t in tensors:
            each = -(-t.sizes[dim] // chunks)
            tail = (each, *t.sizes[dim + 1 :])
            width = math.prod(tail)
            names = ext | {"c": width}
            inner = unflattened(at[dim + 1] - start, tail, names | {"c": width})
            row = at[dim] * each + inner[0]
            inside = [op("lt", index_value(row), const(t.sizes[dim], "int64"))]
            bounds = [op("lt", index_value(at[dim + 1]), const(start + width, "int64"))]
            if start:
                bounds.append(op("ge", index_value(at[dim + 1]), const(start, "int64")))
            read = masked(ctx.read(t, (*at[:dim], row, *inner[1:]), ext), all_of([*bounds, *inside]), const(0, t.dtype))
            out = cast(read, meta.dtype) if out is None else op("where", bounds[-1], cast(read, meta.dtype), out)
            start += width
        assert out is not None
        return out

    return ctx.pointwise(node.results[0], meta, value)
