"""Arguments of aten nodes as arguments of operator calls in a plan, and what leaves a graph as outputs of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from opmill_runtime_cache.plan.model import ComplexArg, Literal, Named

from ..capture.graph import Output, OutputTensor, Value
from ..loops.index import Index, index
from ..lowered import BufferArg, Extern, TensorOutput
from .context import Context


def plan_argument(ctx: Context, arg: Any) -> Any:
    """``arg`` for an operator that is called as it is; tensors laid out as capture promised."""
    return call_argument(arg, partial(_laid_out, ctx))


def _laid_out(ctx: Context, value: Value) -> object:
    if value.name in ctx.marked:
        return _conjugated(ctx, value.name)
    return ctx.strided(ctx.views[value.name], ctx.metas[value.name].strides)


def _conjugated(ctx: Context, name: str) -> BufferArg:
    """A view that is marked as conjugated, as torch has it: what operators give for one may be laid out otherwise."""
    buffer, node = f"{name}_conjugated", ctx.marked[name]
    if buffer not in ctx.buffers:
        args, kwargs = tuple(plan_argument(ctx, a) for a in node.args), {k: plan_argument(ctx, v) for k, v in node.kwargs.items()}
        ctx.buffer(buffer, ctx.metas[name])
        ctx.fixed.add(buffer)
        ctx.nodes.append(Extern(node.func.name(), args, kwargs, (buffer,), origin=ctx.origin))
    return BufferArg(buffer)


def call_argument(arg: Any, tensor: Callable[[Value], object]) -> Any:
    """``arg`` as plans write it; ``tensor`` says what stands for a value of the graph."""
    if isinstance(arg, Value):
        return tensor(arg)
    if isinstance(arg, (list, tuple)):
        return tuple(call_argument(a, tensor) for a in arg)
    if isinstance(arg, Index):
        return arg
    if isinstance(arg, (torch.dtype, torch.layout, torch.memory_format)):
        return Named(type(arg).__name__, str(arg).removeprefix("torch."))
    if isinstance(arg, torch.device):
        return Named("device", str(arg))
    return ComplexArg(arg.real, arg.imag) if isinstance(arg, complex) else Literal(arg)


def plan_output(out: Output, home: Callable[[str], str]) -> Any:
    """An output as plans have it; ``home`` says which buffer holds a value."""
    if not isinstance(out, OutputTensor):
        return index(out) if type(out) is int else out
    if out.sizes is None:
        return TensorOutput(home(out.value))
    sizes, strides = tuple(map(index, out.sizes)), tuple(map(index, out.strides or ()))
    return TensorOutput(home(out.value), sizes, strides, index(out.offset), out.detached, out.dtype, out.twin)


__all__ = ["call_argument", "plan_argument", "plan_output"]
