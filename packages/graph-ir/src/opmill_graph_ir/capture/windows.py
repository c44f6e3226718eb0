"""Attention in which each query sees a band of positions: sliding windows, in front and to both sides.

Torch's kernels compute all scores and hide most; the generator's own go over the band alone. Of 8,192 positions with a window of 1,024 that
is a ninth of the work. In training both halves of an attention are rewritten, or none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from opmill_fake_tensors.lazily import cached_property
from opmill_fake_tensors.optional import all_known
from opmill_runtime_cache.devices.registry import traits_of

from ..loops.index import index
from ..loops.ir import HALF
from .attending import WIDTHS, AttentionOperator
from .formulas import Truth, axis
from .graph import AtenGraph, Meta, Node, OutputTensor, Value, values_in
from .window_graphs import Edge, dense, dense_gradients, dense_with_sums, pairs_of, rows, score_of, slope_of, sums_of_rows

aten = torch.ops.aten
_GRADIENTS = {
    aten._scaled_dot_product_cudnn_attention.default: aten._scaled_dot_product_cudnn_attention_backward.default,
    aten._scaled_dot_product_efficient_attention.default: aten._scaled_dot_product_efficient_attention_backward.default,
}
_RESHAPING = (aten._unsafe_view.default, aten.view.default)
_SHARE = 0.5
"""Of all pairs, up to which a band is worth a kernel that takes longer for each of them: torch's is written by hand."""
_SHARE_OF_BOTH = 0.25
"""The same with gradients, whose kernels are further from torch's."""
_WIDEST = 128
"""Head dimension up to which a kernel of gradients keeps what it needs in registers."""
_FEWEST = 512
"""Positions below which all of them take no time."""


@dataclass
class Windows:
    """What is rewritten in one graph; ``makers``: the nodes that give its values."""

    graph: AtenGraph
    makers: Mapping[str, Node]
    operators: dict[Any, AttentionOperator] = field(default_factory=dict)
    """By what they depend on: attention of layers that are alike is one operator."""

    @cached_property
    def readers(self) -> dict[str, list[Node]]:
        """The nodes that read each value."""
        found: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            for value in values_in((node.args, node.kwargs)):
                found.setdefault(value.name, []).append(node)
        return found

    @cached_property
    def leaving(self) -> frozenset[str | None]:
        """Values that the graph hands out, or writes into inputs."""
        return frozenset(o.value for o in self.graph.outputs if isinstance(o, OutputTensor)).union(self.graph.mutations.values())

    def within_band(self, node: Node, kept: Truth) -> dict[int, list[Node]]:
        """The nodes that compute the same for the pairs that ``kept`` says, by the identity of the one they stand for: of ``node``, and of
        its gradient. Nothing where nothing is gained."""
        edges, halves = _edges(kept), self._halves(node)
        query, key, value = (self.graph.metas[each.name] for each in _operands(node))
        if edges is None or halves is None or not _has_kernel(query, key, value):
            return {}
        if not halves:
            sparse = _is_sparse(edges, query.sizes[2], key.sizes[2], _SHARE)
            return {id(node): [self._forward(node, edges)]} if sparse else {}
        narrow = max(query.sizes[3], value.sizes[3]) <= _WIDEST
        return self._in_halves(node, halves, edges) if narrow and _is_sparse(edges, query.sizes[2], key.sizes[2], _SHARE_OF_BOTH) else {}

    def _halves(self, node: Node) -> list[Node] | None:
        """The nodes of its gradient, which alone may read what it hands out beside its output; None where others do."""
        others = [r for r in node.results[1:] if r is not None]
        found = {id(each): each for r in others for each in self.readers.get(r, ())}
        if not self.leaving.isdisjoint(others) or not all(_is_gradient_of(each, node) for each in found.values()):
            return None
        return list(found.values())

    def _forward(self, node: Node, edges: tuple[Edge, ...]) -> Node:
        """Where the output is all that is asked for."""
        metas, given = self.graph.metas, _operands(node)
        operands = [given[0], *(self._unrepeated(each) for each in given[1:])]
        if metas[operands[1].name].sizes[1] != metas[operands[2].name].sizes[1]:
            operands = given
        looks, result = [metas[each.name] for each in operands], metas[node.results[0] or ""]
        operator = self._operator(node, edges, (*looks, result), lambda: dense(node, edges, looks, result))
        return replace(node, func=operator, args=(*operands, [], []), kwargs={}, results=(node.results[0], None, None))

    def _in_halves(self, node: Node, halves: Sequence[Node], edges: tuple[Edge, ...]) -> dict[int, list[Node]]:
        """With gradients, which read the sums of all rows."""
        metas, given = self.graph.metas, _operands(node)
        looks = [metas[each.name] for each in given]
        results = [None if r is None else metas[r] for r in node.results]
        operator = self._operator(node, edges, (*looks, *results), lambda: dense_with_sums(node, edges, looks, results))
        output, sums = (r or "" for r in node.results[:2])
        found = {id(node): [replace(node, func=operator, args=(*given, [], []), kwargs={}, results=(output, sums, None))]}
        for half in halves:
            of_output, gradients = half.args[0], [None if r is None else metas[r] for r in half.results]
            of_both = partial(dense_gradients, node, half, edges, [*looks, metas[of_output.name]], results, gradients)
            kind = (half.func, repr([a for a in half.args if not isinstance(a, Value)]), *looks, *gradients)
            operator = self._operator(node, edges, kind, of_both, backward=True)
            value, before = sums_of_rows(half, metas[of_output.name], Value(output))
            metas.update(before.metas)
            args = (*given, of_output, Value(sums), value, [], [])
            found[id(half)] = [*before.nodes, replace(half, func=operator, args=args, kwargs={}, results=half.results[:3])]
        metas[sums] = rows("float32", looks[0].sizes[:3], looks[0].device)
        return found

    def _operator(
        self, node: Node, edges: tuple[Edge, ...], kind: tuple[Any, ...], make: Callable[[], AtenGraph], backward: bool = False
    ) -> AttentionOperator:
        """The operator of attention like that of ``node``. ``kind``: what else its dense form, which ``make`` makes, depends on."""
        query, key, _ = (self.graph.metas[each.name] for each in _operands(node))
        scale = node.argument("scale")
        scale = 1 / math.sqrt(query.sizes[3]) if scale is None else float(scale)
        what = (edges, scale, node.func, kind)
        if what not in self.operators:
            sizes, device = (*query.sizes[:3], key.sizes[2]), query.device
            slope = slope_of(sizes, device) if backward else None
            self.operators[what] = AttentionOperator(
                backward, scale, make(), score_of(sizes, device), pairs_of(edges, sizes, device), slope
            )
        return self.operators[what]

    def _unrepeated(self, value: Value) -> Value:
        """Keys or values before they were repeated for each of several queries' heads, which a kernel does by itself."""
        node = self.makers.get(value.name)
        for functions in (_RESHAPING, (aten.clone.default,)):
            if node is not None and node.func in functions:
                node = self.makers.get(node.args[0].name)
        if node is None or node.func is not aten.expand.default:
            return value
        apart = self.makers.get(node.args[0].name)
        if apart is None or apart.func is not aten.unsqueeze.default or apart.args[1] != 2:
            return value
        base: Value = apart.args[0]
        own, repeated = self.graph.metas[base.name].sizes, self.graph.metas[node.results[0] or ""].sizes
        if len(own) != 4 or len(repeated) != 5 or (*repeated[:2], *repeated[3:]) != tuple(own):
            return value
        return base if self.graph.metas[value.name].sizes == (own[0], own[1] * repeated[2], *own[2:]) else value


def _operands(node: Node) -> list[Value]:
    return [node.argument(name) for name in ("query", "key", "value")]


def _is_gradient_of(half: Node, node: Node) -> bool:
    """Whether ``half`` is the gradient of ``node``, and no more: that of a mask is no part of a kernel."""
    if half.func is not _GRADIENTS.get(node.func) or any(half.results[3:]):
        return False
    shared = ("query", "key", "value", "attn_bias", "scale")
    if any(half.argument(name) != node.argument(name) for name in shared) or half.argument("is_causal"):
        return False
    out: Value = half.argument("out")
    return not half.argument("dropout_p") and out.name == node.results[0]


def _edges(kept: Truth) -> tuple[Edge, ...] | None:
    """None where the pairs are no band."""
    i, j = axis(2), axis(1)
    found = []
    for part in kept.parts:
        strides = [part.stride_of(name) or index(0) for name in (i, j)]
        rest = part.substitute({i: index(0), j: index(0)})
        numbers = all_known([n.constant for n in (*strides, rest)])
        if part.symbols - {i, j} or numbers is None or abs(numbers[1]) != 1 or numbers[0] != -numbers[1]:
            return None
        found.append(Edge(*numbers))
    return None if kept.negated or not found else tuple(sorted(found, key=lambda e: (e.queries, e.keys, e.more)))


def _has_kernel(query: Meta, *others: Meta) -> bool:
    sizes = [n for meta in (query, *others) for n in meta.sizes]
    if any(type(n) is not int or n == 0 for n in sizes) or query.sizes[:2] != others[0].sizes[:2]:
        return False
    widths = query.sizes[3] in WIDTHS and others[1].sizes[3] in WIDTHS
    return widths and query.dtype in HALF and traits_of(query.device).matrix_units and all(m.dtype == query.dtype for m in others)


def _is_sparse(edges: Sequence[Edge], queries: int, keys: int, share: float) -> bool:
    """Whether each query has keys, and all of them few, a ``share`` of all pairs at most: what a softmax of nothing is need not be known
    then."""
    if min(queries, keys) < _FEWEST:
        return False
    total = 0
    for i in range(queries):
        ends = [(e.keys, e.queries * i + e.more) for e in edges]
        first = max((-more for sign, more in ends if sign > 0), default=0)
        last = min((more for sign, more in ends if sign < 0), default=keys - 1)
        count = min(last, keys - 1) - max(first, 0) + 1
        if count <= 0:
            return False
        total += count
    return total <= share * queries * keys


__all__ = ["Windows"]
