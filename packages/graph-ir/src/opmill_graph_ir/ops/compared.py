"""Values that are compared with one another, or chosen from one another, on devices whose kernels keep more digits than memory does.

Between operators such a kernel does not round to half precision, and contracts products with sums. That is nearer to the exact result;
but a value that two kernels compute, or one computes and the next reads, is no longer one number. Where it meets what was chosen of it
(``x == x.amax()``, the gradient of a maximum, logits below the k-th largest, ``(x.amax() - x).sqrt()``) the largest element is not as large
as the largest element. Such values, and all that they are made of element by element, are rounded as the program says, in every kernel.
"""

from __future__ import annotations

import torch

from opmill_runtime_cache.devices.registry import traits_of

from ..capture.graph import AtenGraph, Node, values_in
from .records import record_of


def compared(graph: AtenGraph) -> frozenset[str]:
    """The names of these values."""
    makers = graph.makers()
    stack: list[str] = []
    for node in graph.nodes:
        record = record_of(node.func.name())
        if record.chooses:
            stack += filter(None, node.results)
        elif record.compares and len(numbers := [name for name in _operands(node) if _is_float(graph, name)]) > 1:
            stack += numbers
    found: set[str] = set()
    while stack:
        name = stack.pop()
        if name in found:
            continue
        found.add(name)
        maker = makers.get(name)
        if maker is not None and _is_of_elements(maker):
            stack += _operands(maker)
    return frozenset(name for name in found if _is_float(graph, name) and traits_of(graph.metas[name].device).grid)


def _operands(node: Node) -> list[str]:
    return [value.name for value in values_in((node.args, node.kwargs))]


def _is_of_elements(node: Node) -> bool:
    """Whether each element of the results is made of some elements of the operands, or is one."""
    record = record_of(node.func.name())
    return record.kind in ("pointwise", "view") or record.moves or record.chooses


def _is_float(graph: AtenGraph, name: str) -> bool:
    return name in graph.metas and getattr(torch, graph.metas[name].dtype).is_floating_point
