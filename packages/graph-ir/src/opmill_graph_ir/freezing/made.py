"""New nodes in a graph: each with the value that it gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..capture.graph import AtenGraph, Meta, Node, Value


def rows(sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor."""
    return tuple(math.prod(sizes[k + 1 :]) for k in range(len(sizes)))


class Maker:
    """Writes nodes that compute new values of ``graph``. They go where ``nodes`` are put."""

    def __init__(self, graph: AtenGraph, origin: str) -> None:
        self.graph, self.origin = graph, origin
        self.nodes: list[Node] = []

    def __call__(self, func: Any, args: tuple[Any, ...], meta: Meta, name: str = "", **kwargs: Any) -> Value:
        """The result of ``func``; ``name``: that of the value whose place it takes, else it gets one of its own."""
        own, number = False, len(self.graph.metas)
        while not name or (own and name in self.graph.metas):
            name, number, own = f"w{number}", number + 1, True
        self.graph.metas[name] = meta
        self.nodes.append(Node(func, args, kwargs, (name,), self.origin))
        return Value(name)

    def meta(self, value: Value) -> Meta:
        return self.graph.metas[value.name]


__all__ = ["Maker", "rows"]
