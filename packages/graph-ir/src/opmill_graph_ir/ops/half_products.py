"""Products in half precision on processors that cannot multiply it: torch converts element by element inside of them and takes five to
thirty times as long as in float32. Operands are converted here, in one pass over memory, and products are float32's; results are rounded
once, by what follows."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from opmill_fake_tensors.strides import is_dense
from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import Meta, Node, Value
from ..dense import contiguous
from ..loops.index import index
from ..lowered import Extern
from .arguments import call_argument, plan_argument
from .context import Context, View
from .exprs import LOW
from .records import record_of


def is_slow(ctx: Context, view: View) -> bool:
    """Whether products of ``view`` are better done in float32: it is in half precision, on a processor without instructions for that."""
    return view.dtype in LOW and traits_of(ctx.buffers[view.buffer].device).processor and not ctx.exact and _without_halves()


def _without_halves() -> bool:
    return platform.machine() in ("x86_64", "AMD64") and not torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def widened(ctx: Context, value: Any) -> Any:
    """A value of the graph in float32, laid out as it is; what is no half stays."""
    if not isinstance(value, Value) or ctx.metas[value.name].dtype not in LOW:
        return None if value is None else ctx.views[value.name]
    name, meta, view = f"{value.name}_wide", ctx.metas[value.name], ctx.views[value.name]
    if not any(getattr(n, "buffer", None) == name for n in reversed(ctx.nodes)):  # a row that gave up took its loops back
        strides = meta.strides if _is_dense(meta.sizes, meta.strides) else contiguous(meta.sizes)
        ctx.pointwise(name, Meta("float32", meta.sizes, strides, meta.device), lambda at, ext: ctx.load(view, at, ext))
        ctx.fixed.add(name)
    return View(name, "float32", meta.sizes)


def _is_dense(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether elements follow each other in some order of the dimensions."""
    if not all(type(n) is int for n in (*sizes, *strides)):
        return [index(s) for s in strides] == [index(s) for s in contiguous(sizes)]
    return is_dense(sizes, strides)


def in_float(ctx: Context, node: Node) -> list[View | None]:
    """The operator of the node called with all its halves widened; its results narrowed again."""

    def tensor(value: Value) -> object:
        return ctx.strided(widened(ctx, value)) if ctx.metas[value.name].dtype in LOW else plan_argument(ctx, value)

    args, kwargs = call_argument(node.args, tensor), {k: call_argument(v, tensor) for k, v in node.kwargs.items()}
    names: list[str | None] = []
    views: list[View | None] = []
    for result in node.results:
        if result is None or result not in ctx.used:
            names.append(None)
            views.append(None)
            continue
        meta = ctx.metas[result]
        names.append(f"{result}_wide" if meta.dtype in LOW else result)
        views.append(ctx.buffer(names[-1] or "", replace(meta, dtype="float32") if meta.dtype in LOW else meta))
        ctx.fixed.add(names[-1] or "")
    operator = node.func.name()
    ctx.nodes.append(Extern(operator, args, kwargs, tuple(names), record_of(operator).out, (), ctx.origin))
    return [narrowed(ctx, result, view) for result, view in zip(node.results, views, strict=True)]


def narrowed(ctx: Context, result: str | None, view: View | None) -> View | None:
    """``view`` in the type of the result: half precision may be computed in float32."""
    if result is None or view is None or view.dtype == ctx.metas[result].dtype:
        return view
    return ctx.pointwise(result, ctx.metas[result], lambda at, ext: ctx.load(view, at, ext))


__all__ = ["in_float", "is_slow", "narrowed", "widened"]
