"""Attention whose scores a function of the user's changes, as one operator of the aten graph; and graphs without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from .graph import AtenGraph, Node, OutputTensor, Value, replace_values, values_in

WIDTHS = (16, 32, 64, 128, 256)
"""Head dimensions that tiles are made of."""


@dataclass(frozen=True, eq=False)
class AttentionOperator:
    """Stands in a node where torch's operators stand. Forward, of (query, key, value, others): output, logarithm to base 2 of the sums of
    exponentials, largest score times log2(e). Backward, of (query, key, value, gradient of the output, those logarithms, a number of each
    row, others): the gradients of query, key and value, where a score's is its weight times (gradient * value - the row's number).

    Sizes: query [batch, heads, queries, width], key and value [batch, heads / n, keys, width]; all are numbers. ``others`` is a list of
    tensors that the functions read. A list of what says of whole blocks of pairs what ``kept`` says of each may follow: see ``Attention``.
    These are, for each block of queries, the number and the indices of blocks of keys, then (where ``full``) the same of full ones; the
    same for each block of keys, where a gradient is to use them. ``blocks``: queries and keys of one.

    ``dense`` computes the same by torch's operators, of the same tensors. Of tensors [batch, heads, queries, keys], of which each element
    is computed by itself: ``score`` gives changed scores, of scores and others; ``kept`` which pairs count, of others; ``slope`` the
    gradient of scores, of scores, the gradient of the changed ones, and others."""

    backward: bool
    scale: float
    dense: AtenGraph
    score: AtenGraph
    kept: AtenGraph
    slope: AtenGraph | None = None
    blocks: tuple[int, int] | None = None
    full: bool = False
    _overloadname = ""
    tags = ()

    def name(self) -> str:
        return "opmill::attention_backward" if self.backward else "opmill::attention"

    @property
    def _schema(self) -> Any:
        """What a schema says of an operator that only computes."""
        return SimpleNamespace(name=self.name(), overload_name="", is_mutable=False, arguments=(), returns=())

    def __str__(self) -> str:
        return self.name()


def with_dense_attention(graph: AtenGraph, wanted: Callable[[Node], bool] = lambda node: True) -> AtenGraph:
    """``graph`` with torch's operators in place of such nodes of attention; itself where there are none."""
    found = [node for node in graph.nodes if isinstance(node.func, AttentionOperator) and wanted(node)]
    if not found:
        return graph
    metas, constants = dict(graph.metas), dict(graph.constants)
    made = {id(node): list(_dense(node, metas, constants)) for node in found}
    nodes = [inner for node in graph.nodes for inner in made.get(id(node), [node])]
    return replace(graph, nodes=nodes, metas=metas, constants=constants)


def _dense(node: Node, metas: dict[str, Any], constants: dict[str, Any]) -> Iterator[Node]:
    """The nodes that compute what ``node`` does. Their names begin with that of its first result."""
    body: AtenGraph = node.func.dense
    prefix = next(filter(None, node.results))
    names = {name: f"{prefix}_{name}" for name in body.metas}
    names.update(zip(body.inputs, (v.name for v in values_in(node.args)), strict=True))
    for out, result in zip(body.outputs, node.results, strict=True):
        assert isinstance(out, OutputTensor)
        if result is not None:
            names[out.value] = result
    for old, new in names.items():
        metas.setdefault(new, body.metas[old])
    constants.update((names[old], tensor) for old, tensor in body.constants.items())
    for inner in body.nodes:
        yield replace(
            inner,
            args=replace_values(inner.args, names),
            kwargs=replace_values(inner.kwargs, names),
            results=tuple(None if r is None else names[r] for r in inner.results),
            origin=node.origin,
            again=node.again,
            label=node.label,
            kept=node.kept,
        )


__all__ = ["WIDTHS", "AttentionOperator", "Value", "with_dense_attention"]
