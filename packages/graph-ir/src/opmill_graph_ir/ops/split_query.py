"""Attention of one query a head over a cache that is cut into parts, which programs read beside each other.

A kernel of attention takes the heads that share keys as the rows of a tile, and the parts as heads. It reads keys and values as they lie,
each once, and keeps scores to itself; what the parts give is put together by loops. Bytes are all there is to it: as loops, scores and
weights went through memory, and the sum of values had programs that each read little.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Meta, Node
from ..dense import contiguous
from ..loops.index import ZERO, Index, floordiv, index, mod
from ..loops.ir import Attention, Const, Expr, Load, LoopKernel, Reduction, Ref
from ..lowered import BufferArg, Extern, Pointwise, Read
from .context import Context, Extents, Indices, View, view_axes
from .exprs import cast, const, op
from .placed import Memory

_PROGRAMS = 256
"""That read beside each other: two a multiprocessor of a large device. With twice as many, what they find takes longer to put together."""
_LEAST = 64
"""Positions of a part: a tile of keys."""
_LONGEST = 2048
"""Positions that a program reads one after the other where the cache cannot be cut into as many parts as there should be."""
_WIDTHS = (16, 32, 64, 128, 256)
_WIDE = "float32"


@dataclass(frozen=True)
class _Query:
    """Sizes: ``rows`` sequences, ``own`` heads of keys, each for ``shared`` heads of the query, ``parts`` of ``chunk`` positions."""

    rows: int
    own: int
    shared: int
    parts: int
    chunk: int

    def apart(self, both: Index) -> tuple[Index, Index]:
        """The sequence and the head of keys, which are one dimension of the kernel."""
        return (floordiv(both, self.own), mod(both, self.own)) if self.rows > 1 else (ZERO, both)


def split_query(
    ctx: Context, node: Node, query: View, key: View, value: View, bias: View | None, scale: float | None
) -> list[View | None] | None:
    """What the operator gives, as of ``one_query``; None where keys and values do not lie so, or there are no matrix units for them."""
    width, depth = key.sizes[3], value.sizes[3]
    device = ctx.buffers[query.buffer].device
    if not traits_of(device).matrix_units or query.dtype not in ("bfloat16", "float16") or width not in _WIDTHS or depth not in _WIDTHS:
        return None
    key, value = (_origin(ctx, v) for v in (key, value))
    sizes = _sizes(ctx, query, key, value)
    if sizes is None:
        return None
    rows, own = sizes.rows, sizes.own
    grouped = [_grouped(ctx, v, sizes) for v in (key, value)]
    if None in grouped:
        return None

    def of_query(both: Index, part: Index, head: Index, column: Index) -> Indices:
        row, group = sizes.apart(both)
        return row, group * sizes.shared + head, ZERO, column

    heads = _spread(query, (rows * own, 1, sizes.shared, width), of_query)
    memory, result = Memory(ctx), node.results[0] or ""
    if ctx.geometry(heads) is None:
        heads = ctx.materialise(heads)
    placed = {name: memory.placed(v) for name, v in zip(("query", "key", "value"), (heads, *grouped), strict=True) if v is not None}
    if sizes.parts > 1:  # the query is the same for all parts
        own_strides = placed["query"].strides
        placed["query"] = replace(placed["query"], strides=(own_strides[0], 0, *own_strides[2:]))
    score = _score(memory, bias, sizes)
    meta = Meta(_WIDE if sizes.parts > 1 else query.dtype, (n := (rows * own, sizes.parts, sizes.shared, depth)), contiguous(n), device)
    made, placed["output"] = memory.made_as(ctx.fresh(), meta)
    results, sums = [made.buffer], None
    if sizes.parts > 1:
        sums, placed["sums"] = memory.made_as(ctx.fresh(), Meta(_WIDE, n[:3], contiguous(n[:3]), device))
        results.append(sums.buffer)
    factor = 1 / math.sqrt(width) if scale is None else float(scale)
    found = Attention(
        "forward",
        query.dtype,
        rows * own,
        sizes.parts,
        1,
        sizes.shared,
        sizes.chunk,
        width,
        depth,
        factor,
        tuple(placed.items()),
        score,
        Const(True, "bool"),
    )
    kernel = LoopKernel("attention_query", memory.buffers(), (), (), found)
    args = tuple(BufferArg(name) for name in memory.read)
    ctx.nodes.append(Extern("opmill::attention", args, {}, tuple(results), origin=ctx.origin, kernel=kernel))
    return [_together(ctx, result, made, sums, sizes), *(None,) * (len(node.results) - 1)]


def _origin(ctx: Context, view: View) -> View:
    """``view`` without copies in between, of repeated heads say."""
    written = {n.buffer: n for n in ctx.nodes if type(n) is Pointwise}
    while (node := written.get(view.buffer)) is not None:
        read = node.value
        if type(read) is not Read or read.mask is not None or node.lets or node.checks or read.dtype != view.dtype:
            break
        names, extents = view_axes(view.sizes)
        at = view.at(tuple(ZERO if n == 1 else v for v, n in zip(names, view.sizes, strict=True)), extents)
        axes = {a.name: place for a, place in zip(node.axes, at, strict=True)}
        view = View(read.buffer, view.dtype, view.sizes, tuple(i.substitute(axes, extents) for i in read.indices))
    return view


def _spread(view: View, sizes: tuple[int, ...], at: Callable[..., tuple[Index, ...]]) -> View:
    """``view`` with other dimensions: ``at`` gives where a point of them is."""
    names, extents = view_axes(sizes)
    names = tuple(ZERO if n == 1 else v for v, n in zip(names, sizes, strict=True))
    return View(view.buffer, view.dtype, sizes, view.at(at(*names), extents))


def _sizes(ctx: Context, query: View, key: View, value: View) -> _Query | None:
    """Into what keys are cut; None where so many parts cannot be had that it is worth it."""
    rows, heads, length = key.sizes[0], query.sizes[1], key.sizes[2]
    shared = _shared(ctx, query, key)
    if _shared(ctx, query, value) != shared or shared > _LEAST:
        return None
    own = heads // shared
    wanted = max(1, min(_PROGRAMS // (rows * own), length // _LEAST))
    parts = max(n for n in range(1, wanted + 1) if length % n == 0)
    if 2 * parts < wanted and length // parts > _LONGEST:
        return None
    return _Query(rows, own, shared, parts, length // parts)


def _shared(ctx: Context, query: View, key: View) -> int:
    """How many heads of the query have one of keys in memory."""
    heads, count = query.sizes[1], key.sizes[1]
    repeated = heads // count
    for n in range(count, 1, -1):
        if count % n == 0:
            each = _spread(key, (key.sizes[0], count // n, n, *key.sizes[2:]), lambda r, h, s, j, c, n=n: (r, h * n + s, j, c))
            if not any("v2" in i.symbols for i in each.indices or ()):
                return n * repeated
    return repeated


def _grouped(ctx: Context, view: View, sizes: _Query) -> View | None:
    """Keys or values by sequence and head, part, position; None where they are no such view of memory."""
    repeated = view.sizes[1] // sizes.own

    def of_cache(both: Index, part: Index, position: Index, column: Index) -> Indices:
        row, head = sizes.apart(both)
        return row, head * repeated, part * sizes.chunk + position, column

    found = _spread(view, (sizes.rows * sizes.own, sizes.parts, sizes.chunk, view.sizes[3]), of_cache)
    geometry = ctx.geometry(found)
    return found if geometry is not None and all(n.constant is not None for n in (*geometry[0], geometry[1])) else None


def _score(memory: Memory, bias: View | None, sizes: _Query) -> Expr:
    """The score at ``(b, h, i, j)``: sequence and head, part, head of these, position."""
    score = Ref("score", _WIDE)
    if bias is None:
        return score
    lies = memory.placed(bias)
    row, group = sizes.apart(index("b"))
    at: Indices = (row, group * sizes.shared + "i", ZERO, index("h") * sizes.chunk + "j")
    place = index(lies.offset)
    lead = len(at) - len(bias.sizes)
    for where, n, stride in zip(at[lead:], bias.sizes, lies.strides, strict=True):
        place = place + (where * stride if n != 1 else ZERO)
    return op("add", score, cast(Load(lies.buffer, place, bias.dtype), _WIDE))


def _together(ctx: Context, result: str, made: View, sums: View | None, sizes: _Query) -> View:
    """The result of all parts: the mean of theirs, weighted by the sums of exponentials."""
    meta, shared = ctx.metas[result], sizes.shared

    def place(at: Indices, part: Index) -> Indices:
        row, head, _, column = at
        return row * sizes.own + floordiv(head, shared), part, mod(head, shared), column

    if sums is None:
        return ctx.pointwise(result, meta, lambda at, ext: cast(ctx.read(made, place(at, ZERO), ext), meta.dtype))
    largest_meta = Meta(_WIDE, meta.sizes, contiguous(meta.sizes), meta.device)

    def largest(at: Indices, inner: Indices, ext: Extents) -> Any:
        return [Reduction(("most",), "max", ctx.load(sums, place(at, *inner)[:3], ext), _WIDE)], [Ref("most", _WIDE)]

    [most] = ctx.reduce([(None, largest_meta)], [sizes.parts], largest)

    def mixed(at: Indices, inner: Indices, ext: Extents) -> Any:
        there = place(at, *inner)
        top = ctx.load(most, at, ext)
        top = op("where", op("eq", top, const(-math.inf, _WIDE)), const(0.0, _WIDE), top)
        weight = op("exp2", op("sub", ctx.load(sums, there[:3], ext), top))
        total, mix = Ref("total", _WIDE), Ref("mix", _WIDE)
        none = op("eq", total, const(0.0, _WIDE))
        return (
            [
                Reduction(("total",), "sum", weight, _WIDE),
                Reduction(("mix",), "sum", op("mul", weight, ctx.load(made, there, ext)), _WIDE),
            ],
            [op("div", mix, op("where", none, const(1.0, _WIDE), total))],
        )

    [view] = ctx.reduce([(result, meta)], [sizes.parts], mixed)
    return view


__all__ = ["split_query"]
