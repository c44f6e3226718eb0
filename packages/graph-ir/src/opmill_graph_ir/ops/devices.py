"""Operands on other devices than the result: a kernel reads the memory of one device only."""

from __future__ import annotations

from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Meta, Node
from ..lowered import BufferArg, Extern
from .context import Context, View
from .exprs import SUPPORTED, const


def gathered(ctx: Context, node: Node, args: Any) -> Any:
    """``args``, with tensors without dimensions copied to where the result is, as torch's own kernels take them from the CPU;
    NotImplemented where another operand lies elsewhere."""
    devices = {ctx.metas[r].device for r in node.results if r is not None}
    if len(devices) != 1:
        return args if all(traits_of(ctx.buffers[v.buffer].device).host for v in _views(args)) else NotImplemented
    [device] = devices
    away = {v for v in _views(args) if ctx.buffers[v.buffer].device != device}
    if any(v.sizes for v in away):
        return NotImplemented
    return _with(args, {v: _moved(ctx, v, device) for v in away}) if away else args


def constant_there(ctx: Context, node: Node, target: str) -> bool:
    """Makes the copy of a constant on another device a constant there: it would be copied, and waited for, at each call."""
    view, meta = ctx.views[node.args[0].name], ctx.metas[target]
    known = ctx.constants.get(view.buffer)
    if known is None or view.indices is not None or tuple(known.shape) != view.sizes or ctx.buffers[view.buffer].device == meta.device:
        return False
    ctx.constants[target] = known.to(getattr(torch, meta.dtype))
    ctx.views[target] = ctx.buffer(target, meta, "constant")
    return True


def _views(args: Any) -> list[View]:
    if isinstance(args, View):
        return [args]
    items = args.values() if isinstance(args, dict) else args if isinstance(args, (list, tuple)) else ()
    return [v for a in items for v in _views(a)]


def _with(args: Any, moved: dict[View, View]) -> Any:
    if isinstance(args, View):
        return moved.get(args, args)
    if isinstance(args, dict):
        return {k: _with(v, moved) for k, v in args.items()}
    return type(args)(_with(a, moved) for a in args) if isinstance(args, (list, tuple)) else args


def _moved(ctx: Context, view: View, device: str) -> View:
    if (known := ctx.constants.get(view.buffer)) is not None and not known.dim() and view.dtype in SUPPORTED:
        return ctx.pointwise(None, Meta(view.dtype, (), (), device), lambda at, ext: const(known.item(), view.dtype))
    source = ctx.strided(view)
    target = ctx.allocated(None, Meta(view.dtype, (), (), device))
    ctx.nodes.append(Extern("aten::copy_", (BufferArg(target.buffer), source), {}, (None,), None, (target.buffer,), ctx.origin))
    return target


__all__ = ["constant_there", "gathered"]
