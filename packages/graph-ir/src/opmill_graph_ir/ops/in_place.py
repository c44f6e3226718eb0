"""Operators of others that write to their arguments: their functional form is the operator itself on copies, made only where somebody else still
reads what is written."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from ..capture.graph import Node, Value
from ..loops.index import index
from ..lowered import BufferArg, Extern
from .arguments import plan_argument
from .context import Context, View
from .exprs import SUPPORTED


@lru_cache(None)
def writing_form(func: Any) -> tuple[Any, tuple[int, ...]] | None:
    """The operator ``NAME_`` of which ``func``, ``NAME``, is the functional form, and the positions of what it writes; None where there is none.
    What a writing form returns, its functional form gives first."""
    space, _, name = func._schema.name.partition("::")
    packet = None if space in ("aten", "prims") else getattr(getattr(torch.ops, space), f"{name}_", None)
    form = getattr(func, "opmill_writes", None) or getattr(packet, func._overloadname, None)
    if form is None or func._schema.is_mutable or (form._schema.returns and form is not getattr(func, "opmill_writes", None)):
        return None
    arguments, own = form._schema.arguments, func._schema.arguments
    writes = tuple(k for k, a in enumerate(arguments) if a.is_write and str(a.type) == "Tensor")
    same = [(a.name, str(a.type)) for a in arguments] == [(a.name, str(a.type)) for a in own]
    return (form, writes) if same and len(writes) == len(func._schema.returns) - len(form._schema.returns) == sum(a.is_write for a in arguments) else None


def write_in_place(ctx: Context, node: Node) -> bool:
    """Calls the writing form, if there is one, and names what it wrote as results; whether it did."""
    found = writing_form(node.func)
    if found is None or node.kwargs or any(type(node.args[k]) is not Value for k in found[1]):
        return False
    form, writes = found
    returned, written = node.results[: len(node.results) - len(writes)], node.results[len(node.results) - len(writes) :]
    targets = [_target(ctx, node.args[k].name, result) for k, result in zip(writes, written, strict=True)]
    own = dict(zip(writes, targets, strict=True))
    args = tuple(BufferArg(own[k].buffer) if k in own else plan_argument(ctx, a) for k, a in enumerate(node.args))
    results = tuple(r if r in ctx.used else None for r in returned)
    for result in results:
        if result is not None:
            ctx.views[result] = ctx.buffer(result, ctx.metas[result])
            ctx.fixed.add(result)
    ctx.nodes.append(Extern(form.name(), args, {}, results, None, tuple(t.buffer for t in targets), ctx.origin))
    for result, target in zip(written, targets, strict=True):
        if result is not None:
            ctx.views[result], ctx.heirs[result] = target, target.buffer
    return True


def _target(ctx: Context, value: str, result: str | None) -> View:
    """The memory that is written: the value's own where nothing else reads it, or a copy of it."""
    view, meta = ctx.views[value], ctx.metas[result or value]
    info = ctx.buffers[view.buffer]
    lies = info.strides == tuple(map(index, meta.strides)) and view.indices is None
    if view.buffer == ctx.heirs.get(value, value) and info.role == "temporary" and ctx.readers.get(value) == 1 and lies:
        ctx.fixed.add(value)
        return view
    if meta.dtype in SUPPORTED and 0 not in meta.sizes:
        copy = ctx.pointwise(result, meta, lambda at, extents: ctx.read(view, at, extents))
        ctx.fixed.add(copy.buffer)
        return copy
    source = plan_argument(ctx, Value(value))
    copy = ctx.allocated(result, meta)
    ctx.nodes.append(Extern("aten::copy_", (BufferArg(copy.buffer), source), {}, (None,), None, (copy.buffer,), ctx.origin))
    return copy
