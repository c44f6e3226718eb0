"""Products of one operand with several matrices that stay (queries, keys and values; a gate and what it gates) are one product.

    x @ a, x @ b = (x @ [a b]) in two parts

The operand is read once, and what a call of oneDNN costs beside its multiplications is paid once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import AtenGraph, Meta, Node, Value
from .constant import Constant, is_view
from .made import Maker, rows

aten = torch.ops.aten

_MOST_ROWS = 512
"""Rows of the operand from which on multiplications are all that counts."""
_PLACES = {aten.mm.default: (None, 0, 1), aten.addmm.default: (0, 1, 2)}
"""Where the bias, the operand and the matrix stand."""


def put_together(graph: AtenGraph, constant: Constant, least: int) -> None:
    """Rewrites the products that have an operand in common and that are ``least`` multiplications together. What is made of weights comes
    first then."""
    makers = graph.makers()
    groups: dict[Hashable, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if _suits(graph, node, constant):
            bias, operand, matrix = _arguments(node)
            meta = graph.metas[matrix.name]
            groups[_origin(operand.name, makers), bias is None, meta.sizes[0], meta.dtype].append(node)
    groups = {key: found for key, found in groups.items() if len(found) > 1 and sum(_work(graph, n) for n in found) >= least}
    if not groups:
        return
    first = [node for node in graph.nodes if node.results and all(r is None or r in constant for r in node.results)]
    behind = {id(node) for node in first}
    instead: dict[int, list[Node]] = {}
    for found in groups.values():
        made = _one(graph, found)
        instead |= {id(node): [] for node in found} | {id(found[0]): made}
    rest = [node for node in graph.nodes if id(node) not in behind]
    graph.nodes = [*first, *(new for node in rest for new in instead.get(id(node), (node,)))]


def _arguments(node: Node) -> tuple[Value | None, Value, Value]:
    bias, operand, matrix = _PLACES[node.func]
    return None if bias is None else node.args[bias], node.args[operand], node.args[matrix]


def _work(graph: AtenGraph, node: Node) -> int:
    _, operand, matrix = _arguments(node)
    return math.prod((*graph.metas[operand.name].sizes, graph.metas[matrix.name].sizes[1]))


def _suits(graph: AtenGraph, node: Node, constant: Constant) -> bool:
    if node.func not in _PLACES or node.kwargs:
        return False
    bias, operand, matrix = _arguments(node)
    metas = [graph.metas[v.name] for v in (operand, matrix) if v is not None]
    count, columns = metas[0].sizes[0], metas[1].sizes[1]
    return (
        operand.name not in constant
        and matrix.name in constant.weights
        and (bias is None or (bias.name in constant.weights and graph.metas[bias.name].sizes == (columns,)))
        and metas[0].dtype == metas[1].dtype in ("float32", "bfloat16")
        and type(count) is int
        and 0 < count <= _MOST_ROWS
        and 0 not in metas[1].sizes
        and all(traits_of(m.device).processor and not m.opaque for m in metas)
    )


def _origin(name: str, makers: dict[str, Node]) -> Hashable:
    """A name for what a value is; views that are made alike have the same one."""
    node = makers.get(name)
    if node is None or len(node.results) != 1 or not (is_view(node) or node.func is aten._unsafe_view.default):
        return name
    source, *rest = node.args
    return node.func, _origin(source.name, makers), repr((rest, node.kwargs))


def _one(graph: AtenGraph, found: list[Node]) -> list[Node]:
    """The nodes that stand for several products. Their matrices are laid out as those of linear layers are."""
    make = Maker(graph, found[0].origin)
    biases, operands, matrices = zip(*map(_arguments, found), strict=True)
    depth, dtype = make.meta(matrices[0]).sizes[0], make.meta(matrices[0])
    columns = [make.meta(m).sizes[1] for m in matrices]
    total, count = sum(columns), make.meta(operands[0]).sizes[0]

    def of(*sizes: Any, strides: tuple[Any, ...] | None = None) -> Meta:
        return replace(dtype, sizes=sizes, strides=strides or rows(sizes))

    turned = [
        make(aten.t.default, (m,), replace(make.meta(m), sizes=make.meta(m).sizes[::-1], strides=make.meta(m).strides[::-1]))
        for m in matrices
    ]
    whole = make(aten.cat.default, (turned, 0), of(total, depth))
    matrix = make(aten.t.default, (whole,), of(depth, total, strides=(1, depth)))
    args: tuple[Any, ...] = (operands[0], matrix)
    if biases[0] is not None:
        args = (make(aten.cat.default, (list(biases), 0), of(total)), *args)
    product = make(found[0].func, args, of(count, total))
    start = 0
    for node, width in zip(found, columns, strict=True):
        name = node.results[0] or ""
        part = make(aten.slice.Tensor, (product, 1, start, start + width), of(count, width, strides=(total, 1)))
        make(aten.clone.default, (part,), graph.metas[name], name, memory_format=torch.contiguous_format)
        start += width
    return make.nodes


__all__ = ["put_together"]
