"""What leaves the graph: tensors in memory of their own, laid out as eager has them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from ..capture.graph import AtenGraph, Meta, Node, OutputTensor
from ..loops.index import ONE, ZERO, index
from .arguments import plan_output
from .context import Context


def outputs_of(ctx: Context, graph: AtenGraph, origin_of: Callable[[Node], str]) -> tuple[Any, ...]:
    """The outputs as a program has them. Tensors get a buffer of their own, or are all of one that nobody else is given; equal values
    share it."""
    homes: dict[str, str] = {n: n for n in (*graph.inputs, *graph.held)}
    makers = graph.makers()
    often = Counter(o.value for o in graph.outputs if isinstance(o, OutputTensor))

    def home(value: str) -> str:
        if value not in homes:
            ctx.origin = origin_of(makers[value]) if value in makers else ctx.origin
            homes[value] = _home(ctx, value, graph.metas[value], homes.values())
        ctx.fixed.add(homes[value])
        return homes[value]

    def output(out: Any) -> Any:
        if isinstance(out, OutputTensor) and out.value not in homes and out.sizes is None and often[out.value] == 1:
            meta = graph.metas[out.value]
            if _is_all_of_another(ctx, out.value, meta, homes.values()):
                homes[out.value] = ctx.views[out.value].buffer
                out = replace(out, sizes=meta.sizes, strides=meta.strides)
        return plan_output(out, home)

    return tuple(map(output, graph.outputs))


def _home(ctx: Context, value: str, meta: Meta, taken: Collection[str]) -> str:
    view = ctx.views[value]
    info = ctx.buffers[view.buffer]
    laid_out = info.strides == tuple(map(index, meta.strides))
    if view.indices is None and info.role == "temporary" and laid_out and view.buffer not in taken:
        return view.buffer
    return ctx.materialise(view, meta.strides).buffer


def _is_all_of_another(ctx: Context, value: str, meta: Meta, taken: Collection[str]) -> bool:
    """Whether the value is a view of all of a temporary whose elements lie where they would in a copy. That of results of products with
    batches, for example, which torch computes without."""
    view = ctx.views[value]
    info = ctx.buffers[view.buffer]
    if view.indices is None or info.role != "temporary" or info.opaque or info.dtype != view.dtype or view.buffer in taken:
        return False
    geometry = ctx.geometry(view)
    if geometry is None or 0 in meta.sizes:
        return False
    strides, offset = geometry
    alike = all(n == 1 or found == index(stride) for n, found, stride in zip(meta.sizes, strides, meta.strides, strict=True))
    count = math.prod(info.sizes, start=ONE)
    last = sum(((n - 1) * stride for n, stride in zip(info.sizes, info.strides, strict=True)), ZERO)
    return alike and offset == ZERO and math.prod(meta.sizes, start=ONE) == count == last + 1


__all__ = ["outputs_of"]
