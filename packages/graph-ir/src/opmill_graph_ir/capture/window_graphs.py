"""Attention of a band of positions, and its gradients, as operators of a graph: the functions of a kernel, and what torch's operators do
instead of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..dense import contiguous
from .graph import AtenGraph, Meta, Node, OutputTensor, Value, replace_values

aten = torch.ops.aten


@dataclass(frozen=True)
class Edge:
    """Pairs of a query i and a key j count where ``queries * i + keys * j + more`` is not negative."""

    queries: int
    keys: int
    more: int


def score_of(sizes: tuple[int, ...], device: str) -> AtenGraph:
    """Scores stay as they are."""
    return AtenGraph(inputs=["x0"], metas={"x0": rows("float32", sizes, device)}, outputs=[OutputTensor("x0")])


def pairs_of(edges: Sequence[Edge], sizes: tuple[int, ...], device: str) -> AtenGraph:
    """Which pairs count, of all scores."""
    graph = AtenGraph()
    kept = _add_pairs(graph, edges, sizes, device)
    all_of_them = _add(graph, "all", Meta("bool", sizes, (0, 0, sizes[3], 1), device), aten.expand.default, kept, list(sizes))
    _add(graph, "kept", rows("bool", sizes, device), aten.clone.default, all_of_them, memory_format=torch.contiguous_format)
    graph.outputs = [OutputTensor("kept")]
    return graph


def _add_pairs(graph: AtenGraph, edges: Sequence[Edge], sizes: tuple[int, ...], device: str) -> Value:
    """Adds what says of a query and a key whether they count."""
    *_, queries, keys = sizes
    i, j = (
        _add(graph, name, rows("int64", (n,), device), aten.arange.default, n, device=torch.device(device), pin_memory=False)
        for name, n in (("i", queries), ("j", keys))
    )
    column = _add(graph, "column", rows("int64", (queries, 1), device), aten.view.default, i, [queries, 1])
    distance = _add(graph, "distance", rows("int64", (queries, keys), device), aten.sub.Tensor, column, j)
    truths = rows("bool", (queries, keys), device)
    kept: Value | None = None
    for k, edge in enumerate(edges):
        compare, limit = (aten.ge.Scalar, -edge.more) if edge.queries > 0 else (aten.le.Scalar, edge.more)
        inside = _add(graph, f"edge{k}", truths, compare, distance, limit)
        kept = inside if kept is None else _add(graph, f"both{k}", truths, aten.logical_and.default, kept, inside)
    assert kept is not None
    return kept


def slope_of(sizes: tuple[int, ...], device: str) -> AtenGraph:
    """Gradients of scores stay as they are, too."""
    metas = dict.fromkeys(("x0", "x1"), rows("float32", sizes, device))
    return AtenGraph(inputs=list(metas), metas=metas, outputs=[OutputTensor("x1")])


def dense(node: Node, edges: Sequence[Edge], metas: Sequence[Meta], result: Meta) -> AtenGraph:
    """The same by the operator that was there, of a mask that is written out. ``metas``: of query, key and value."""
    graph = AtenGraph(inputs=["q", "k", "v"], metas=dict(zip(("q", "k", "v"), metas, strict=True)))
    key, value = (_add_repeated(graph, name, metas[0].sizes[1]) for name in ("k", "v"))
    _add_attention(graph, node, edges, key, value, [result, *(None for _ in node.results[1:])])
    graph.outputs = [OutputTensor("f0")] * 3
    return graph


def dense_with_sums(node: Node, edges: Sequence[Edge], metas: Sequence[Meta], results: Sequence[Meta | None]) -> AtenGraph:
    """The same with the sums of rows, of which torch hands out natural logarithms. ``results``: of all that ``node`` hands out."""
    graph = AtenGraph(inputs=["q", "k", "v"], metas=dict(zip(("q", "k", "v"), metas, strict=True)))
    _add_attention(graph, node, edges, Value("k"), Value("v"), results)
    sizes, device, natural = metas[0].sizes[:3], metas[0].device, graph.metas["f1"]
    if len(natural.sizes) == 4:
        sums = _add(graph, "column", replace(natural, sizes=sizes, strides=natural.strides[:3]), aten.squeeze.dim, Value("f1"), 3)
    else:  # each row is filled up to a multiple of some number
        sums = _add(graph, "part", replace(natural, sizes=sizes), aten.slice.Tensor, Value("f1"), 2, 0, sizes[2])
    _add(graph, "sums", rows("float32", sizes, device), aten.mul.Tensor, sums, 1 / math.log(2))
    graph.outputs = [OutputTensor("f0"), OutputTensor("sums"), OutputTensor("sums")]
    return graph


def dense_gradients(
    node: Node, half: Node, edges: Sequence[Edge], metas: Sequence[Meta], results: Sequence[Meta | None], gradients: Sequence[Meta | None]
) -> AtenGraph:
    """The gradients by torch's operators. What ``half`` wants of ``node`` is computed once more: sums alone are not what it reads.
    ``metas``: of query, key, value and the output's gradient; ``gradients``: of all that ``half`` hands out."""
    graph = AtenGraph(inputs=[*"qkvgsr"], metas=dict(zip("qkvg", metas, strict=True)))
    graph.metas |= dict.fromkeys("sr", rows("float32", metas[0].sizes[:3], metas[0].device))
    bias = _add_attention(graph, node, edges, Value("k"), Value("v"), results)
    again = {r: f"f{k}" for k, r in enumerate(node.results) if r is not None}
    call = replace(half, args=replace_values(half.args, again), kwargs=dict(half.kwargs))
    for name, operand in (("query", "q"), ("key", "k"), ("value", "v"), ("attn_bias", bias.name)):
        call.set_argument(name, Value(operand))
    call.args = (Value("g"), *call.args[1:])
    call.results = tuple(None if meta is None else f"g{k}" for k, meta in enumerate(gradients))
    graph.metas |= {f"g{k}": meta for k, meta in enumerate(gradients) if meta is not None}
    graph.nodes.append(call)
    graph.outputs = [OutputTensor(r or "g") for r in call.results[:3]]  # what nobody wants is anything
    return graph


def sums_of_rows(half: Node, gradient: Meta, output: Value) -> tuple[Value, AtenGraph]:
    """What is taken off each row's gradients of weights: the sum of its output times the gradient of that. The value, and a graph of the
    nodes that compute it."""
    graph = AtenGraph()
    prefix, wide = next(filter(None, half.results)), rows("float32", gradient.sizes, gradient.device)
    factors = [
        _add(graph, f"{prefix}_{name}", wide, aten._to_copy.default, value, dtype=torch.float32)
        for name, value in (("gradient", half.args[0]), ("output", output))
    ]
    product = _add(graph, f"{prefix}_product", wide, aten.mul.Tensor, *factors)
    sums = _add(graph, f"{prefix}_rows", rows("float32", gradient.sizes[:3], gradient.device), aten.sum.dim_IntList, product, [3])
    for node in graph.nodes:
        node.origin, node.label = half.origin, half.label
    return sums, graph


def _add_attention(graph: AtenGraph, node: Node, edges: Sequence[Edge], key: Value, value: Value, results: Sequence[Meta | None]) -> Value:
    """Adds ``node`` of ``q`` and a mask that is written out; returns that. Its results are ``f0``, ``f1`` and so on, which look like
    ``results``."""
    query = graph.metas["q"]
    sizes, device, dtype = (*query.sizes[:3], graph.metas[key.name].sizes[2]), query.device, getattr(torch, query.dtype)
    kept = _add_pairs(graph, edges, sizes, device)
    shown, hidden = (
        _add(graph, name, Meta(query.dtype, (), (), device), aten.full.default, [], number, dtype=dtype, device=torch.device(device))
        for name, number in (("shown", 0.0), ("hidden", -math.inf))
    )
    mask = _add(graph, "mask", rows(query.dtype, sizes[2:], device), aten.where.self, kept, shown, hidden)
    bias = _add(graph, "bias", Meta(query.dtype, sizes, (0, 0, sizes[3], 1), device), aten.expand.default, mask, list(sizes))
    call = replace(node, kwargs=dict(node.kwargs), results=tuple(None if meta is None else f"f{k}" for k, meta in enumerate(results)))
    for name, operand in (("query", Value("q")), ("key", key), ("value", value), ("attn_bias", bias)):
        call.set_argument(name, operand)
    graph.metas |= {f"f{k}": meta for k, meta in enumerate(results) if meta is not None}
    graph.nodes.append(call)
    return bias


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


def rows(dtype: str, sizes: tuple[int, ...], device: str) -> Meta:
    """A tensor that lies in rows."""
    return Meta(dtype, sizes, contiguous(sizes), device)


def _add(graph: AtenGraph, name: str, meta: Meta, func: Any, *args: Any, **kwargs: Any) -> Value:
    graph.metas[name] = meta
    graph.nodes.append(Node(func, args, kwargs, (name,)))
    return Value(name)


__all__ = ["Edge", "dense", "dense_gradients", "dense_with_sums", "pairs_of", "rows", "score_of", "slope_of", "sums_of_rows"]
