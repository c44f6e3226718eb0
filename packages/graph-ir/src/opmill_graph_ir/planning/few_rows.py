"""Products of a few rows with a large matrix on processors, as loops: the matrix is read once, at the memory's speed, for all rows
together. Libraries of matrix products lay it out anew first, as they would for many."""

from __future__ import annotations

from collections.abc import Mapping

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import AtenGraph, Meta, Node

_OPERANDS = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::_int_mm": (0, 1)}
_ROWS = {"float32": range(1, 13), "float16": range(1, 33), "bfloat16": range(1, 6), "int8": range(1, 9)}
"""How many rows, by type: with more of bfloat16 the libraries have instructions for it. One core with AVX-512 and a matrix of 2,048 by 768:
one row takes 0.23 ms of float32 instead of 0.25, ten 0.44 instead of 0.89; one of bfloat16 0.12 instead of 0.25, four 0.17. Two cores that
multiply bytes, and a matrix of 4,096 squared of these: one row takes 0.6 ms instead of 1.2, eight 0.8 instead of 1.0; nine 1.4."""
_LEAST = 1 << 18
"""Elements of a matrix that is large."""


def few_rows(graph: AtenGraph) -> Mapping[str, bool]:
    """The results of such products, as ``lower`` takes them: operands are read as they are."""
    found = {}
    for node in graph.nodes:
        operands = _operands(graph, node)
        if operands is not None and reads_once(*operands) and node.results[0]:
            found[node.results[0]] = False
    return found


def _operands(graph: AtenGraph, node: Node) -> tuple[Meta, Meta] | None:
    places = _OPERANDS.get(node.func.name())
    if places is None or node.kwargs:
        return None
    first, second = (graph.metas[node.args[k].name] for k in places)
    return first, second


def reads_once(first: Meta, second: Meta) -> bool:
    """Whether a product is of few enough rows, with a large matrix that lies along the sums, as weights do."""
    known = all(type(n) is int for n in (*first.sizes, *second.sizes, *second.strides))
    if not known or not traits_of(second.device).processor or first.dtype != second.dtype:
        return False
    (depth, columns), (step, _) = second.sizes, second.strides
    return first.sizes[0] in _ROWS.get(second.dtype, ()) and step == 1 and depth >= 64 and depth * columns >= _LEAST


__all__ = ["few_rows", "reads_once"]
