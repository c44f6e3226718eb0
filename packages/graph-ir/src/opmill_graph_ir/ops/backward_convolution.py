"""The backward of convolutions: on CPUs, of each channel for itself, torch's kernels for channels last take half to a tenth of the time of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..capture.channels_last import strides_of
from ..capture.graph import Node
from ..lowered import BufferArg, Extern
from .arguments import plan_argument
from .channels_last import backward_on_gpu
from .context import Context, View
from .rows import Rows

ROWS = Rows()


@ROWS.lowers("convolution_backward")
def _convolution_backward(ctx: Context, node: Node, gradient: View, x: View, weight: View, *rest: Any) -> Any:
    if ctx.buffers[x.buffer].device != "cpu":
        return backward_on_gpu(ctx, node, gradient, x, weight, *rest)
    channels, groups = weight.sizes[0], rest[6]
    apart = len(x.sizes) == 4 and groups == channels == x.sizes[1] > 1 == weight.sizes[1] and weight.sizes[2] * weight.sizes[3] > 1
    if not apart or rest[4] or not all(_is_plain(ctx, v) for v in (gradient, x, weight)) or ctx.metas[node.args[1].name].strides[1] == 1:
        return NotImplemented
    operands = (*(_channels_last(ctx, v) for v in (gradient, x)), *(plan_argument(ctx, a) for a in node.args[2:]))
    results = tuple(r if r in ctx.used else None for r in node.results)
    views: list[View | None] = []
    for name in results:
        if name is None:
            views.append(None)
            continue
        meta = ctx.metas[name]
        views.append(ctx.buffer(name, replace(meta, strides=strides_of(meta.sizes)) if name == node.results[0] else meta))
        ctx.fixed.add(name)
    ctx.nodes.append(Extern(node.func.name(), operands, {}, results, None, (), ctx.origin))
    return views


def _is_plain(ctx: Context, view: View) -> bool:
    """Whether it is a float32 tensor on a CPU with elements, of known size."""
    return view.dtype == "float32" and ctx.buffers[view.buffer].device == "cpu" and all(type(n) is int and n > 0 for n in view.sizes)


def _channels_last(ctx: Context, view: View) -> BufferArg:
    return BufferArg(ctx.materialise(view, strides_of(view.sizes)).buffer)


__all__ = ["ROWS"]
