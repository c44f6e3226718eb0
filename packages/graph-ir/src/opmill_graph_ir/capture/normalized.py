"""What a norm returns, computed again from its input and the statistics that it found.

The backward of a norm reads its input and its statistics; what comes after it reads what it returned. With the statistics at hand the
latter is a few operations an element: ``(x - mean) * rstd * weight + bias``. It need not be kept beside the former, which is as large.

Only on processors: memory that is not kept lies in the arena, whose pages are there already, and that pays for the operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of

from ..ops.records import record_of
from .graph import AtenGraph, Meta, Node, Value

aten = torch.ops.aten

_WIDE = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"}


@dataclass(frozen=True)
class Ways:
    """``makers``: for the values that norms return, and for all that lies on the way to them, the operators that make them from the norms'
    inputs and statistics. ``passing``: those on the way, which no forward has."""

    makers: Mapping[str, Node]
    passing: frozenset[str]


def ways(graph: AtenGraph, forward: Iterable[Node]) -> Ways:
    """How the results of norms among the nodes ``forward`` can be had a second time. Metas of what lies on the way are added to the
    graph."""
    nodes: list[Node] = []
    ends: set[str] = set()
    for node in forward:
        if (way := _way(graph, node)) is not None:
            nodes += way
            ends.update(name for name in way[-1].results if name)
    makers = {name: node for node in nodes for name in node.results if name}
    return Ways(makers, frozenset(makers.keys() - ends))


def _way(graph: AtenGraph, node: Node) -> list[Node] | None:
    """The operators of one norm; None where the node is none, or where its statistics are rounded or are not those of this input."""
    if (
        node.again
        or len(node.results) < 3
        or None in node.results[:3]
        or not traits_of(graph.metas[node.results[0] or ""].device).processor
    ):
        return None
    over, (result, mean, rstd) = record_of(node.func.name()).normalizes, (r or "" for r in node.results[:3])
    trailing = len(graph.metas[result].sizes) - 2
    steps = _Steps(graph, result, _WIDE.get(graph.metas[result].dtype, ""), node.origin, [])
    if any(graph.metas[s].dtype != steps.wide for s in (mean, rstd)):
        return None
    if over == "rows":
        return steps.normalize(node.args[0], [Value(mean), Value(rstd), *node.args[2:4]])
    if over == "groups":
        channels, groups = node.args[4], node.args[6]
        center, scale = (steps.by_channel(Value(s), channels, groups) for s in (mean, rstd))
        return steps.normalize(node.args[0], [steps.spread(v, trailing) for v in (center, scale, *node.args[1:3])])
    if over == "channels" and node.argument("training") is True:
        return steps.normalize(node.args[0], [steps.spread(v, trailing) for v in (Value(mean), Value(rstd), *node.args[1:3])])
    return None


@dataclass
class _Steps:
    """Operators that lead to ``result``, of which all but the last are computed in the type ``wide``."""

    graph: AtenGraph
    result: str
    wide: str
    origin: str
    nodes: list[Node]

    def normalize(self, x: Value, others: Sequence[Value | None]) -> list[Node]:
        """All operators. ``others``: the mean, the reciprocal deviation, the weight and the bias, as broadcasting takes them to ``x``."""
        meta = self.graph.metas[self.result]
        inner = replace(meta, dtype=self.wide)
        value = x if self.graph.metas[x.name].dtype == self.wide else self._cast(x, inner)
        for func, other in zip((aten.sub.Tensor, aten.mul.Tensor, aten.mul.Tensor, aten.add.Tensor), others, strict=True):
            value = value if other is None else self._add(func, (value, other), {}, inner)
        if meta.dtype != self.wide:
            value = self._cast(value, meta)
        del self.graph.metas[value.name]
        self.nodes[-1] = replace(self.nodes[-1], results=(self.result,))
        return self.nodes

    def spread(self, value: Value | None, trailing: int) -> Value | None:
        """A tensor by channel [..., C] as one that meets images: [..., C, 1, 1]."""
        for _ in range(trailing):
            value = None if value is None else self._unsqueezed(value)
        return value

    def by_channel(self, value: Value, channels: Any, groups: Any) -> Value:
        """A tensor by group [N, G] as one by channel [N, C]."""
        value = self._unsqueezed(value)
        old = self.graph.metas[value.name]
        shares = channels // groups
        sizes = (*old.sizes[:2], shares)
        value = self._add(aten.expand.default, (value, sizes), {}, replace(old, sizes=sizes, strides=(*old.strides[:2], 0)))
        value = self._add(aten.clone.default, (value,), {}, replace(old, sizes=sizes, strides=(channels, shares, 1)))
        sizes = (old.sizes[0], channels)
        return self._add(aten.view.default, (value, sizes), {}, replace(old, sizes=sizes, strides=(channels, 1)))

    def _unsqueezed(self, value: Value) -> Value:
        old = self.graph.metas[value.name]
        return self._add(
            aten.unsqueeze.default, (value, len(old.sizes)), {}, replace(old, sizes=(*old.sizes, 1), strides=(*old.strides, 1))
        )

    def _cast(self, value: Value, meta: Meta) -> Value:
        return self._add(aten._to_copy.default, (value,), {"dtype": getattr(torch, meta.dtype)}, meta)

    def _add(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: Meta) -> Value:
        name = f"{self.result}_again{len(self.nodes)}"
        self.graph.metas[name] = meta
        self.nodes.append(Node(func, args, kwargs, (name,), self.origin))
        return Value(name)
