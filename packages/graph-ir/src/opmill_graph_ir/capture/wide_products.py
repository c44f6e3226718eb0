"""Products of half precision that are handed out in float32, as autocast does it with the gradients of weights: written so by the product
itself. Rounding them first and widening them afterwards is less exact, and goes twice more through memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from opmill_runtime_cache.devices.registry import traits_of

from ..loops.ir import HALF
from .graph import AtenGraph, Meta, Node, OutputTensor, Value

aten = torch.ops.aten
_WIDE = "float32"


def widen_products(graph: AtenGraph) -> None:
    """Rewrites such products on devices with matrix units, which add up in float32."""
    makers, uses = graph.makers(), graph.readers()
    outputs = {o.value for o in graph.outputs if isinstance(o, OutputTensor)}
    instead: dict[int, Node] = {}
    dropped: set[int] = set()
    for node in graph.nodes:
        result = node.results[0] if node.results else None
        if result in outputs and (chain := _widened(graph.metas, makers, uses, node)):
            product = chain[-1]
            instead[id(product)] = replace(product, func=aten.mm.dtype, args=(*product.args, torch.float32), results=(result,))
            dropped |= set(map(id, chain[:-1]))
    if instead:
        graph.nodes = [instead.get(id(node), node) for node in graph.nodes if id(node) not in dropped]


def _widened(metas: Mapping[str, Meta], makers: Mapping[str, Node], uses: Mapping[str, int], node: Node) -> list[Node]:
    """From a conversion back to the product that it is of, by way of transposes that cancel each other; nothing where it is of none, or
    where something else reads what lies between."""
    if node.func is not aten._to_copy.default or node.results[0] is None or metas[node.results[0]].dtype != _WIDE:
        return []
    made, chain, turned = metas[node.results[0]], [node], False
    while chain[-1].func is not aten.mm.default:
        value = chain[-1].args[0]
        maker = makers.get(value.name) if type(value) is Value else None
        if maker is None or uses[value.name] != 1 or maker.func not in (aten.t.default, aten.mm.default) or maker.again:
            return []
        turned ^= maker.func is aten.t.default
        chain.append(maker)
    product = metas[chain[-1].results[0] or ""]
    if turned or product.dtype not in HALF or not traits_of(product.device).matrix_units:
        return []
    same = (made.sizes, made.strides, made.device) == (product.sizes, product.strides, product.device)
    return chain if same else []


__all__ = ["widen_products"]
