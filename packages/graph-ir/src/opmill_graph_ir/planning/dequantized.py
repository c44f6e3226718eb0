"""Products of few rows with a matrix that is computed of a smaller one (integers of one byte times scales): loops that compute the matrix
where they read it.

Such a product is a matter of memory. As an operator of torch's it wants the matrix written out: four bytes an element are written and read
again beside the one that is there. With more rows the operator is worth it, as it computes so much faster."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import AtenGraph, Meta, Node, Value, values_in
from ..loops.ir import HALF
from ..ops.records import record_of

MOST_ROWS = 8
"""Rows of a product whose loops compute the matrix once for each of them."""
MOST_TILED = 64
"""The same where units for matrices multiply tiles of it, and memory is what a product of so many rows waits for."""
_OPERANDS = {"aten::mm": (0, 1), "aten::addmm": (1, 2)}


def dequantized(graph: AtenGraph) -> Mapping[str, bool]:
    """The results of such products, as ``lower`` takes them: each is to compute its operand."""
    makers, readers = graph.makers(), graph.readers()
    found = {}
    for node in graph.nodes:
        places = _OPERANDS.get(node.func.name())
        if places is None or node.kwargs or not node.results[0]:
            continue
        first, second = (node.args[k] for k in places)
        if _has_few_rows(graph.metas[first.name]) and _is_computed(graph, second, makers, readers):
            found[node.results[0]] = True
    return found


def _has_few_rows(meta: Meta) -> bool:
    if not all(type(n) is int for n in meta.sizes):
        return False
    device = traits_of(meta.device)
    if device.matrix_units and meta.dtype in HALF:
        return 1 < meta.sizes[0] <= MOST_TILED
    return device.processor and meta.dtype in ("float32", *HALF) and 0 < meta.sizes[0] <= MOST_ROWS


def _is_computed(graph: AtenGraph, matrix: Value, makers: Mapping[str, Node], readers: Mapping[str, int]) -> bool:
    """Whether a matrix that nobody else reads is made, element by element, of at most half of its bytes. It may be turned, and nothing
    more: loops along its rows read what it is made of along rows, too."""
    meta = graph.metas[matrix.name]
    if not all(type(n) is int for n in meta.sizes) or math.prod(meta.sizes) == 0:
        return False
    waiting, seen, read = [matrix.name], {matrix.name}, 0
    while waiting:
        name = waiting.pop()
        node = makers.get(name)
        kind = "" if node is None else record_of(node.func.name()).kind
        if node is None or kind not in ("pointwise", "view"):
            read += _bytes(graph.metas[name])
            continue
        if readers[name] != 1 or len(node.results) != 1:
            return False
        operands = {v.name for v in values_in((node.args, node.kwargs))} - seen
        seen |= operands
        waiting += operands
    return matrix.name in makers and 2 * read <= _bytes(meta)


def _bytes(meta: Meta) -> int:
    if not all(type(n) is int for n in meta.sizes):
        return 1 << 62
    return math.prod(meta.sizes) * getattr(torch, meta.dtype).itemsize


__all__ = ["MOST_ROWS", "MOST_TILED", "dequantized"]
