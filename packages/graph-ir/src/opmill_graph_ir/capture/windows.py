"""Attention in which each query sees a band of positions: sliding windows, in front and to both sides.

Torch's kernels compute all scores and hide most; the generator's own go over the band alone. Of 8,192 positions with a window of 1,024 that
is a ninth of the work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from opmill_fake_tensors.lazily import cached_property
from opmill_fake_tensors.optional import all_known
from opmill_runtime_cache.devices.registry import traits_of

from ..dense import contiguous
from ..loops.index import index
from ..loops.ir import HALF
from .attending import WIDTHS, AttentionOperator
from .formulas import Truth, axis
from .graph import AtenGraph, Meta, Node, OutputTensor, Value, values_in

aten = torch.ops.aten
_RESHAPING = (aten._unsafe_view.default, aten.view.default)
_SHARE = 0.5
"""Of all pairs, up to which a band is worth a kernel that takes longer for each of them: torch's is written by hand."""
_FEWEST = 512
"""Positions below which all of them take no time."""


@dataclass(frozen=True)
class Edge:
    """Pairs of a query i and a key j count where ``queries * i + keys * j + more`` is not negative."""

    queries: int
    keys: int
    more: int


@dataclass
class Windows:
    """What is rewritten in one graph; ``makers``: the nodes that give its values."""

    graph: AtenGraph
    makers: Mapping[str, Node]
    operators: dict[Any, AttentionOperator] = field(default_factory=dict)
    """By what they depend on: attention of layers that are alike is one operator."""

    @cached_property
    def read(self) -> frozenset[str | None]:
        """Values that somebody reads."""
        found = {v.name for node in self.graph.nodes for v in values_in((node.args, node.kwargs))}
        leaving = (o.value for o in self.graph.outputs if isinstance(o, OutputTensor))
        return frozenset(found).union(self.graph.mutations.values(), leaving)

    def within_band(self, node: Node, kept: Truth) -> Node | None:
        """The node that computes the same for the pairs that ``kept`` says; None where nothing is gained, or a gradient needs the node."""
        edges, metas = _edges(kept), self.graph.metas
        names = ("query", "key", "value")
        given = [node.argument(name) for name in names]
        query, key, value = (metas[each.name] for each in given)
        if edges is None or not _has_kernel(query, key, value) or not _is_sparse(edges, query.sizes[2], key.sizes[2]):
            return None
        if not self.read.isdisjoint(node.results[1:]):
            return None
        scale = node.argument("scale")
        scale = 1 / math.sqrt(query.sizes[3]) if scale is None else float(scale)
        operands = [given[0], *(self._unrepeated(each) for each in given[1:])]
        if metas[operands[1].name].sizes[1] != metas[operands[2].name].sizes[1]:
            operands = given
        result = metas[node.results[0] or ""]
        what = (edges, scale, tuple(metas[each.name] for each in operands), result)
        if what not in self.operators:
            sizes, device = (*query.sizes[:3], key.sizes[2]), query.device
            dense = _dense(node, edges, what[2], result)
            self.operators[what] = AttentionOperator(False, scale, dense, _score(sizes, device), _pairs(edges, sizes, device))
        return replace(node, func=self.operators[what], args=(*operands, [], []), kwargs={}, results=(node.results[0], None, None))

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


def _is_sparse(edges: Sequence[Edge], queries: int, keys: int) -> bool:
    """Whether each query has keys, and all of them few: what a softmax of nothing is need not be known then."""
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
    return total <= _SHARE * queries * keys


# ---- as graphs -----------------------------------------------------------------------------------------------------------


def _score(sizes: tuple[int, ...], device: str) -> AtenGraph:
    """Scores stay as they are."""
    return AtenGraph(inputs=["x0"], metas={"x0": _rows("float32", sizes, device)}, outputs=[OutputTensor("x0")])


def _pairs(edges: Sequence[Edge], sizes: tuple[int, ...], device: str) -> AtenGraph:
    """Which pairs count, of all scores."""
    graph = AtenGraph()
    kept = _add_pairs(graph, edges, sizes, device)
    all_of_them = _add(graph, "all", Meta("bool", sizes, (0, 0, sizes[3], 1), device), aten.expand.default, kept, list(sizes))
    _add(graph, "kept", _rows("bool", sizes, device), aten.clone.default, all_of_them, memory_format=torch.contiguous_format)
    graph.outputs = [OutputTensor("kept")]
    return graph


def _add_pairs(graph: AtenGraph, edges: Sequence[Edge], sizes: tuple[int, ...], device: str) -> Value:
    """Adds what says of a query and a key whether they count."""
    *_, queries, keys = sizes
    i, j = (
        _add(graph, name, _rows("int64", (n,), device), aten.arange.default, n, device=torch.device(device), pin_memory=False)
        for name, n in (("i", queries), ("j", keys))
    )
    column = _add(graph, "column", _rows("int64", (queries, 1), device), aten.view.default, i, [queries, 1])
    distance = _add(graph, "distance", _rows("int64", (queries, keys), device), aten.sub.Tensor, column, j)
    truths = _rows("bool", (queries, keys), device)
    kept: Value | None = None
    for k, edge in enumerate(edges):
        compare, limit = (aten.ge.Scalar, -edge.more) if edge.queries > 0 else (aten.le.Scalar, edge.more)
        inside = _add(graph, f"edge{k}", truths, compare, distance, limit)
        kept = inside if kept is None else _add(graph, f"both{k}", truths, aten.logical_and.default, kept, inside)
    assert kept is not None
    return kept


def _dense(node: Node, edges: Sequence[Edge], metas: Sequence[Meta], result: Meta) -> AtenGraph:
    """The same by the operator that was there, of a mask that is written out."""
    graph = AtenGraph(inputs=["q", "k", "v"], metas=dict(zip(("q", "k", "v"), metas, strict=True)))
    query = metas[0]
    batch, heads, queries, _ = query.sizes
    key, value = (_add_repeated(graph, name, heads) for name in ("k", "v"))
    sizes, device, dtype = (batch, heads, queries, metas[1].sizes[2]), query.device, getattr(torch, query.dtype)
    kept = _add_pairs(graph, edges, sizes, device)
    shown, hidden = (
        _add(graph, name, Meta(query.dtype, (), (), device), aten.full.default, [], number, dtype=dtype, device=torch.device(device))
        for name, number in (("shown", 0.0), ("hidden", -math.inf))
    )
    mask = _add(graph, "mask", _rows(query.dtype, sizes[2:], device), aten.where.self, kept, shown, hidden)
    bias = _add(graph, "bias", Meta(query.dtype, sizes, (0, 0, sizes[3], 1), device), aten.expand.default, mask, list(sizes))
    graph.metas["y"] = result
    call = replace(node, results=("y", *(None for _ in node.results[1:])))
    for name, operand in (("query", Value("q")), ("key", key), ("value", value), ("attn_bias", bias)):
        call.set_argument(name, operand)
    graph.nodes.append(call)
    graph.outputs = [OutputTensor("y")] * 3
    return graph


def _add_repeated(graph: AtenGraph, name: str, heads: int) -> Value:
    """Adds keys or values repeated for each of the queries' heads."""
    meta = graph.metas[name]
    batch, own, keys, width = meta.sizes
    if own == heads:
        return Value(name)
    b, h, k, w = meta.strides
    wide = (batch, own, heads // own, keys, width)
    apart = _add(
        graph,
        f"{name}1",
        replace(meta, sizes=(batch, own, 1, keys, width), strides=(b, h, h, k, w)),
        aten.unsqueeze.default,
        Value(name),
        2,
    )
    repeated = _add(graph, f"{name}2", replace(meta, sizes=wide, strides=(b, h, 0, k, w)), aten.expand.default, apart, list(wide))
    laid = _add(graph, f"{name}3", meta.contiguous(wide), aten.clone.default, repeated, memory_format=torch.contiguous_format)
    sizes = (batch, heads, keys, width)
    return _add(graph, f"{name}4", meta.contiguous(sizes), aten.view.default, laid, list(sizes))


def _rows(dtype: str, sizes: tuple[int, ...], device: str) -> Meta:
    return Meta(dtype, sizes, contiguous(sizes), device)


def _add(graph: AtenGraph, name: str, meta: Meta, func: Any, *args: Any, **kwargs: Any) -> Value:
    graph.metas[name] = meta
    graph.nodes.append(Node(func, args, kwargs, (name,)))
    return Value(name)


__all__ = ["Edge", "Windows"]
