"""Gradients of what a mask selects.

``x[mask]`` gives as many rows as the mask has truths, and autograd adds their gradients into zeros at the positions where these stand:
they are found a second time, and added one after the other, as if two could meet. They stand in the mask's own order, each once, so they
are laid there by one pass over the mask.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

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
    for k in range(len(rest)):
        sizes, strides = (*truths.sizes, *[1] * (k + 1)), (*truths.strides, *[1] * (k + 1))
        mask = out.add(aten.unsqueeze.default, Meta("bool", sizes, strides, truths.device), mask, len(truths.sizes) + k)
    # zero plus a gradient of -0.0 is 0.0
    values = out.add(aten.add.Scalar, given.contiguous(), values, 0.0)
    out.nodes.append(replace(node, func=aten.masked_scatter.default, args=(base, mask, values)))
    return out.nodes


__all__ = ["lay_selected"]
