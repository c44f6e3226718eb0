"""Products of a few rows with a large matrix on processors, as loops: the matrix is read once, at the memory's speed, for all rows
together. Libraries of matrix products lay it out anew first, as they would for many."""

from __future__ import annotations

from collections.abc import Mapping

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import AtenGraph, Meta, Node

_OPERANDS = {"aten::mm": (0, 1), "aten::addmm": (1, 2)}
_ROWS = {"float32": range(2, 9), "float16": range(1, 33)}
"""How many rows, by type. One row of float32 and few of bfloat16 are no slower in the libraries. Two AVX-512 cores: four rows of 2,048
with a square matrix take 0.3 ms of float32 instead of 1.0, 0.2 of float16 instead of 1.1."""
_LEAST = 1 << 18
"""Elements of a matrix that is large."""


def few_rows(graph: AtenGraph) -> Mapping[str, bool]:
    """The results of such products, as ``lower`` takes them: operands are read as they are."""
    found = {}
    for node in graph.nodes:
        operands = _operands(graph, node)
        if operands is not None and _is_slow(*operands) and node.results[0]:
            found[node.results[0]] = False
    return found


def _operands(graph: AtenGraph, node: Node) -> tuple[Meta, Meta] | None:
    places = _OPERANDS.get(node.func.name())
    if places is None or node.kwargs:
        return None
    first, second = (graph.metas[node.args[k].name] for k in places)
    return first, second


def _is_slow(first: Meta, second: Meta) -> bool:
    """Whether the matrix lies along the sums, as weights do."""
    known = all(type(n) is int for n in (*first.sizes, *second.sizes, *second.strides))
    if not known or not traits_of(second.device).processor or first.dtype != second.dtype:
        return False
    (depth, columns), (step, _) = second.sizes, second.strides
    return first.sizes[0] in _ROWS.get(second.dtype, ()) and step == 1 and depth >= 64 and depth * columns >= _LEAST


__all__ = ["few_rows"]
