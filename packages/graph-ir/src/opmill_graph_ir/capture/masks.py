"""Random masks are kept for the backward as truths.

Dropout on a processor multiplies by numbers that are zero or one, divided by the share of ones; autograd keeps these. Written down as
truths that are cast back, they are what the smallest cut between forward and backward saves: a byte each.
"""

from __future__ import annotations

from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of

from .graph import AtenGraph, Node, Value, values_in

aten = torch.ops.aten
_DRAWS = (aten.bernoulli.p, aten.bernoulli.default, aten.bernoulli.Tensor)


def keep_as_truths(graph: AtenGraph) -> None:
    """For a joint graph: what is drawn and read otherwise than as a result goes through truths."""
    drawn = [name for node in graph.nodes if node.func in _DRAWS for name in node.results if name]
    wide = {
        name for name in drawn if traits_of(graph.metas[name].device).processor and getattr(torch, graph.metas[name].dtype).itemsize > 1
    }
    if not wide:
        return
    nodes: list[Node] = []
    for node in graph.nodes:
        read = wide.intersection(v.name for v in values_in((node.args, node.kwargs)))
        if read:
            node.args, node.kwargs = _renamed(node.args, read), {k: _renamed(v, read) for k, v in node.kwargs.items()}
        nodes.append(node)
        for name in wide.intersection(r for r in node.results if r):
            nodes += _through_truths(graph, name, node.origin)
    graph.nodes = nodes


def _through_truths(graph: AtenGraph, name: str, origin: str) -> list[Node]:
    meta = graph.metas[name]
    graph.metas[f"{name}_truth"] = type(meta)("bool", meta.sizes, meta.strides, meta.device)
    graph.metas[f"{name}_back"] = meta
    cast = aten._to_copy.default
    return [
        Node(cast, (Value(name),), {"dtype": torch.bool}, (f"{name}_truth",), origin),
        Node(cast, (Value(f"{name}_truth"),), {"dtype": getattr(torch, meta.dtype)}, (f"{name}_back",), origin),
    ]


def _renamed(value: Any, names: set[str]) -> Any:
    if isinstance(value, Value):
        return Value(f"{value.name}_back") if value.name in names else value
    return type(value)(_renamed(v, names) for v in value) if type(value) in (list, tuple) else value
