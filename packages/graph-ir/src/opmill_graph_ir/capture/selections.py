"""Gradients of what a mask selects.

``x[mask]`` gives as many rows as the mask has truths, and autograd adds their gradients into zeros at the positions where these stand:
they are found a second time, and added one after the other, as if two could meet. They stand in the mask's own order, each once, so they
are laid there by one pass over the mask.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of

from .graph import AtenGraph, Meta, Node, Value
from .log_softmax import Steps

aten = torch.ops.aten
_ZEROS = (aten.new_zeros.default, aten.zeros.default, aten.zeros_like.default)
_DTYPES = {"float64", "float32", "bfloat16", "float16"}


def lay_selected(graph: AtenGraph) -> None:
    """Rewrites those of a joint graph whose selection is in it, so that there are as many gradients as truths."""
    selected = {
        (mask.name, symbol)
        for node in graph.nodes
        if node.func is aten.index.Tensor and (mask := _first(node.args[1])) is not None
        for symbol, _, dim in node.binds
        if dim == 0
    }
    if not selected:
        return
    zeros = {node.results[0] for node in graph.nodes if node.func in _ZEROS}
    nodes: list[Node] = []
    for node in graph.nodes:
        steps = _laid(graph, node, selected, zeros) if node.func is aten.index_put.default else None
        nodes += [node] if steps is None else steps
    graph.nodes = nodes


def _first(ids: Any) -> Value | None:
    """The index of the first dimension, where no other is given."""
    given = [i for i in ids if i is not None]
    return ids[0] if len(given) == 1 and ids[0] is not None else None


def _laid(graph: AtenGraph, node: Node, selected: set[tuple[str, str]], zeros: set[str | None]) -> list[Node] | None:
    base, ids, values, *accumulate = node.args
    mask, result = _first(ids), node.results[0]
    if mask is None or result is None or accumulate != [True] or base.name not in zeros or graph.metas[mask.name].dtype != "bool":
        return None
    meta, given, truths = graph.metas[base.name], graph.metas[values.name], graph.metas[mask.name]
    rest = meta.sizes[len(truths.sizes) :]
    if (
        meta.dtype not in _DTYPES
        or given.dtype != meta.dtype
        or given.sizes[1:] != rest
        or (mask.name, str(given.sizes[0])) not in selected
    ):
        return None
    out = Steps(graph, node)
    if len(truths.sizes) == 1 and rest and traits_of(meta.device).processor:
        return _rows(graph, out, base, mask, values)
    for k in range(len(rest)):
        sizes, strides = (*truths.sizes, *[1] * (k + 1)), (*truths.strides, *[1] * (k + 1))
        mask = out.add(aten.unsqueeze.default, Meta("bool", sizes, strides, truths.device), mask, len(truths.sizes) + k)
    # zero plus a gradient of -0.0 is 0.0
    values = out.add(aten.add.Scalar, given.contiguous(), values, 0.0)
    out.nodes.append(replace(node, func=aten.masked_scatter.default, args=(base, mask, values)))
    return out.nodes


def _rows(graph: AtenGraph, out: Steps, base: Value, mask: Value, values: Value) -> list[Node]:
    """Whole rows are looked up by their numbers, as loops: row 0 is one of zeros, which those that the mask leaves out have."""
    meta, given, truths = graph.metas[base.name], graph.metas[values.name], graph.metas[mask.name]
    numbers = replace(truths.contiguous(), dtype="int64")
    counted = out.add(aten.cumsum.default, numbers, mask, 0)
    number = out.add(aten.mul.Tensor, numbers, counted, mask)
    lead = out.add(aten.zeros.default, given.contiguous((1, *given.sizes[1:])), [1, *given.sizes[1:]], **_like(given))
    # zero plus a gradient of -0.0 is 0.0
    added = out.add(aten.add.Scalar, given.contiguous(), values, 0.0)
    rows = out.add(aten.cat.default, given.contiguous((given.sizes[0] + 1, *given.sizes[1:])), [lead, added])
    out.nodes.append(replace(out.node, func=aten.index_select.default, args=(rows, 0, number), kwargs={}))
    graph.metas[out.node.results[0] or ""] = meta
    return out.nodes


def _like(meta: Meta) -> dict[str, Any]:
    return {"dtype": getattr(torch, meta.dtype), "layout": torch.strided, "device": torch.device(meta.device)}


__all__ = ["lay_selected"]
