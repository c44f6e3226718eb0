"""Which values are made of weights that stay, and of nothing else."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass

from opmill_fake_tensors.operator import describe

from ..capture.clean import must_run
from ..capture.control import ControlOperator
from ..capture.graph import AtenGraph, Meta, Node, OutputTensor, values_in

_GROWTH = 4
"""By how much a result may be larger than all that it is made of, to be kept."""
_SMALL = 1 << 16
"""Elements that may be kept in any case."""


@dataclass(frozen=True)
class Constant:
    """Values that need no call: ``weights`` are frozen inputs and what is made of them, ``made`` what is made of numbers alone."""

    weights: Set[str]
    made: Set[str]

    def __contains__(self, name: str) -> bool:
        return name in self.weights or name in self.made


def frozen_inputs(graph: AtenGraph, promised: Set[str]) -> set[str]:
    """Of the inputs that are promised to stay, those that the graph neither writes nor gives out, and whose sizes are numbers."""
    gone = set(graph.mutations) | {o.value for o in graph.outputs if isinstance(o, OutputTensor)}
    for node in graph.nodes:
        if describe(node.func).writes:
            gone.update(v.name for v in values_in((node.args, node.kwargs)))
    return {name for name in promised - gone if name in graph.metas and _is_known(graph.metas[name])}


def constant_values(graph: AtenGraph, frozen: Set[str]) -> Constant:
    """Everything that follows from ``frozen``. What leaves the graph does not: the caller may write to it."""
    weights, made = set(frozen), set(graph.constants)
    leaving = {o.value for o in graph.outputs if isinstance(o, OutputTensor)} | set(graph.mutations.values())
    for node in graph.nodes:
        names = [v.name for v in values_in((node.args, node.kwargs))]
        if not all(n in weights or n in made for n in names) or not _is_constant(graph, node, names, leaving):
            continue
        (weights if any(n in weights for n in names) else made).update(r for r in node.results if r)
    return Constant(weights, made)


def is_view(node: Node) -> bool:
    """Whether results show the memory of an operand."""
    return describe(node.func).gives_views


def _is_constant(graph: AtenGraph, node: Node, names: list[str], leaving: Set[str]) -> bool:
    results = [r for r in node.results if r]
    if isinstance(node.func, ControlOperator) or not results or not describe(node.func).pure or must_run(node, graph):
        return False
    if not leaving.isdisjoint(results) or not all(_is_known(graph.metas[r]) for r in results):
        return False
    given = sum(_numel(graph.metas[n]) for n in set(names))
    return is_view(node) or sum(_numel(graph.metas[r]) for r in results) <= max(_GROWTH * given, _SMALL)


def _is_known(meta: Meta) -> bool:
    return all(type(n) is int for n in (*meta.sizes, *meta.strides))


def _numel(meta: Meta) -> int:
    return math.prod(meta.sizes)


__all__ = ["Constant", "constant_values", "frozen_inputs", "is_view"]
