"""Arguments of aten nodes as arguments of operator calls in a plan."""

from __future__ import annotations

from typing import Any

import torch

from opmill_runtime_cache.plan.model import ComplexArg, Literal, Named

from ..capture.graph import Value
from ..loops.index import Index
from .context import Context


def plan_argument(ctx: Context, arg: Any) -> Any:
    """``arg`` for an operator that is called as it is; tensors laid out as capture promised."""
    if isinstance(arg, Value):
        return ctx.strided(ctx.views[arg.name], ctx.metas[arg.name].strides)
    if isinstance(arg, (list, tuple)):
        return tuple(plan_argument(ctx, a) for a in arg)
    if isinstance(arg, Index):
        return arg
    if isinstance(arg, (torch.dtype, torch.layout, torch.memory_format)):
        return Named(type(arg).__name__, str(arg).removeprefix("torch."))
    if isinstance(arg, torch.device):
        return Named("device", str(arg))
    return ComplexArg(arg.real, arg.imag) if isinstance(arg, complex) else Literal(arg)


__all__ = ["plan_argument"]
