"""Convolutions of half precision on GPUs: cuDNN's kernels read and write channels last, and would copy what lies otherwise back and forth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opmill_runtime_cache.plan.model import Literal

from ..capture.graph import Node
from ..loops.index import index
from ..lowered import BufferArg, Extern
from .arguments import plan_argument
from .context import Context, View
from .exprs import op

_HALF = ("float16", "bfloat16")


def on_gpu(ctx: Context, node: Node, x: View, weight: View, bias: View | None, *rest: Any) -> Any:
    """The convolution with all its tensors channels last, its bias added by what follows; NotImplemented where that does not apply.

    What is seen outside keeps eager's layout: an operand that leaves the graph would have to be kept in both."""
    [name] = node.results
    meta = ctx.metas[name or ""]
    known = all(type(n) is int for v in (x, weight) for n in v.sizes) and len(x.sizes) == 4
    if name is None or not known or meta.dtype not in _HALF or not meta.device.startswith("cuda") or rest[3]:
        return NotImplemented
    if any(v.name in ctx.leaving for v in node.args[:1]) or name in ctx.leaving:
        return NotImplemented
    operands = [_laid_out(ctx, v) for v in (x, weight)]
    laid = replace(meta, strides=_strides(meta.sizes))
    result = name if bias is None else ctx.fresh()
    view = ctx.buffer(result, laid)
    ctx.fixed.add(result)
    args = (*operands, Literal(None), *(plan_argument(ctx, a) for a in node.args[3:]))
    ctx.nodes.append(Extern(node.func.name(), args, {}, (result,), None, (), ctx.origin))
    if bias is None:
        return view
    return ctx.pointwise(name, laid, lambda at, ext: op("add", ctx.load(view, at, ext), ctx.load(bias, at[1:2], ext)))


def _strides(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    _, c, h, w = sizes
    return h * w * c, 1, w * c, c


def _laid_out(ctx: Context, view: View) -> BufferArg:
    """The tensor channels last: as it lies, by laying out anew what the graph computes itself, or as a copy."""
    wanted = _strides(view.sizes)
    info = ctx.buffers[view.buffer]
    found = ctx.geometry(view)
    if found is not None and all(n == 1 or s.constant == w for n, s, w in zip(view.sizes, found[0], wanted, strict=True)):
        return ctx.strided(view)
    if view.indices is None and info.role == "temporary" and view.buffer not in ctx.fixed:
        ctx.buffers[view.buffer] = replace(info, strides=tuple(map(index, wanted)))
        ctx.fixed.add(view.buffer)
        return BufferArg(view.buffer)
    return BufferArg(ctx.materialise(view, wanted).buffer)


__all__ = ["on_gpu"]
