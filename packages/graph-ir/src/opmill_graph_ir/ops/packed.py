"""Convolutions with weights in oneDNN's own layout. Their images lie channels last: what loops make is laid out so at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..capture.channels_last import strides_of
from ..capture.graph import Node
from ..lowered import Extern
from .arguments import plan_argument
from .channels_last import laid_channels_last
from .context import Context, View
from .records import Rows

ROWS = Rows(space="mkldnn")


@ROWS.lowers("_convolution_pointwise _convolution_transpose_pointwise", own_memory=True)
def _convolution(ctx: Context, node: Node, x: View, *rest: Any) -> Any:
    [name] = node.results
    meta = ctx.metas[name or ""]
    if name is None or len(x.sizes) != 4 or not all(type(n) is int for n in (*x.sizes, *meta.sizes)):
        return NotImplemented
    image = laid_channels_last(ctx, x)
    view = ctx.buffer(name, replace(meta, strides=strides_of(meta.sizes)))
    ctx.fixed.add(name)
    args = (image, *(plan_argument(ctx, a) for a in node.args[1:]))
    ctx.nodes.append(Extern(node.func.name(), args, {}, (name,), None, (), ctx.origin))
    return view
