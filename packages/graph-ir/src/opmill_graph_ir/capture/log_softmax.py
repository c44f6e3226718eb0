"""The logarithm of a softmax in steps, in graphs with gradients: what its backward needs is had again from its input and two numbers a row.

The operator's own formula keeps its result, which is as large as the input and, under autocast, in a wider type: 1.6 GB for the words of
eight texts of a thousand. ``x - max - log(sum)`` is three operations an element, and what is kept are the maximum and the logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .graph import AtenGraph, Meta, Node, Value

aten = torch.ops.aten
_WIDE = {"float16": torch.float32, "bfloat16": torch.float32}
_SMALLEST = 1 << 16
"""Elements below which the result may as well be kept."""


def in_steps(graph: AtenGraph) -> None:
    """Rewrites the large ones of a joint graph."""
    nodes: list[Node] = []
    for node in graph.nodes:
        steps = _steps(graph, node) if node.func is aten._log_softmax.default else None
        nodes += steps if steps is not None else [node]
    graph.nodes = nodes


def _steps(graph: AtenGraph, node: Node) -> list[Node] | None:
    x, dim, _ = node.args
    result = node.results[0]
    meta = graph.metas[x.name]
    numbers = all(type(n) is int for n in meta.sizes)
    if result is None or node.again or not numbers or not meta.sizes or _size(meta) < _SMALLEST:
        return None
    wide = _WIDE.get(meta.dtype) or getattr(torch, meta.dtype)
    whole = replace(meta, dtype=str(wide).removeprefix("torch.")).contiguous()
    row_sizes = tuple(1 if d == dim % len(meta.sizes) else n for d, n in enumerate(meta.sizes))
    rows = whole.contiguous(row_sizes)
    out = Steps(graph, node)
    value = x if meta.dtype == whole.dtype else out.add(aten._to_copy.default, whole, x, dtype=wide)
    most = out.add(aten.amax.default, rows, value, [dim], True)
    shifted = out.add(aten.sub.Tensor, whole, value, most)
    total = out.add(aten.sum.dim_IntList, rows, out.add(aten.exp.default, whole, shifted), [dim], True)
    out.add(aten.sub.Tensor, whole, shifted, out.add(aten.log.default, rows, total))
    if graph.metas[result].dtype != whole.dtype:
        out.add(
            aten._to_copy.default,
            graph.metas[result],
            Value(out.nodes[-1].results[0] or ""),
            dtype=getattr(torch, graph.metas[result].dtype),
        )
    last = out.nodes[-1]
    del graph.metas[last.results[0] or ""]
    out.nodes[-1] = replace(last, results=(result,))
    return out.nodes


@dataclass
class Steps:
    """Nodes that stand for ``node``, with names made of its result's."""

    graph: AtenGraph
    node: Node
    nodes: list[Node] = field(default_factory=list)

    def add(self, func: Any, meta: Meta, *args: Any, **kwargs: Any) -> Value:
        name = f"{self.node.results[0]}_step{len(self.nodes)}"
        self.graph.metas[name] = meta
        self.nodes.append(Node(func, args, kwargs, (name,), self.node.origin, label=self.node.label))
        return Value(name)


def _size(meta: Meta) -> int:
    total = 1
    for n in meta.sizes:
        total *= n
    return total


__all__ = ["Steps", "in_steps"]
