"""Operators of others that write to their arguments: their functional form is the operator itself on copies, made only where somebody else
still reads what is written."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from ..capture.graph import Node, Value, values_in
from ..loops.index import index
from ..lowered import BufferArg, Extern
from ..overloads import resolve
from .arguments import call_argument, plan_argument
from .context import Context, View
from .exprs import MOVABLE
from .records import record_of


@lru_cache(None)
def writing_form(func: Any) -> tuple[Any, tuple[int, ...]] | None:
    """The operator ``NAME_`` of which ``func``, ``NAME``, is the functional form, and the positions of what it writes; None where there is
    none. What a writing form returns, its functional form gives first. Those that capture made of an operator write whatever it writes,
    others tensors."""
    if (own := record_of(func.name()).in_place) is not None:
        return resolve(own), (0,)
    space, _, name = func._schema.name.partition("::")
    packet = None if space in ("aten", "prims") else getattr(getattr(torch.ops, space), f"{name}_", None)
    form = getattr(func, "opmill_writes", None) or getattr(packet, func._overloadname, None)
    arguments = [] if form is None else form._schema.arguments
    writes = tuple(k for k, a in enumerate(arguments) if a.is_write)
    if form is None or form is getattr(func, "opmill_writes", None):
        return None if form is None else (form, writes)
    if func._schema.is_mutable or form._schema.returns or any(str(arguments[k].type) != "Tensor" for k in writes):
        return None
    same = [(a.name, str(a.type)) for a in arguments] == [(a.name, str(a.type)) for a in func._schema.arguments]
    return (form, writes) if same and len(writes) == len(func._schema.returns) else None


def write_in_place(ctx: Context, node: Node) -> bool:
    """Calls the writing form, if there is one, and names what it wrote as results; whether it did."""
    found = writing_form(node.func)
    if found is None or node.kwargs:
        return False
    form, writes = found
    values = values_in([node.args[k] for k in writes if k < len(node.args)])
    returns = form._schema.returns
    count = len(node.results) - sum(r.alias_info is None for r in returns)
    if len(values) != count or not values:
        return False
    returned, written = node.results[:-count], node.results[-count:]
    if any(ctx.metas[r].sizes != ctx.metas[v.name].sizes for v, r in zip(values, written, strict=True) if r):
        return False  # the functional form broadcasts what the other writes
    targets = [_target(ctx, value.name, result) for value, result in zip(values, written, strict=True)]
    given = iter(targets)
    args = tuple(
        call_argument(a, lambda _: BufferArg(next(given).buffer)) if k in writes else plan_argument(ctx, a) for k, a in enumerate(node.args)
    )
    results = tuple(r if r in ctx.used else None for r in returned)
    for result in results:
        if result is not None:
            ctx.views[result] = ctx.buffer(result, ctx.metas[result])
            ctx.fixed.add(result)
    own = iter(results)
    made = tuple(next(own) if r.alias_info is None else None for r in returns)
    ctx.nodes.append(Extern(form.name(), args, {}, made, None, tuple(t.buffer for t in targets), ctx.origin))
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
    if meta.dtype in MOVABLE and 0 not in meta.sizes:
        copy = ctx.pointwise(result, meta, lambda at, extents: ctx.read(view, at, extents))
        ctx.fixed.add(copy.buffer)
        return copy
    source = plan_argument(ctx, Value(value))
    copy = ctx.allocated(result, meta)
    ctx.nodes.append(Extern("aten::copy_", (BufferArg(copy.buffer), source), {}, (None,), None, (copy.buffer,), ctx.origin))
    return copy
