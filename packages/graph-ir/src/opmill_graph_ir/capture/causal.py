"""Attention whose mask says of positions alone that no query sees what comes behind it is causal, and needs none; one whose mask says that
queries see a window becomes a kernel of the generator's.

Programs that are traced write such masks out (models of transformers do, where in eager they leave the mask to the kernel), and a kernel
that reads a mask computes also what it hides: of 2,048 positions attention takes 2.7 times as long so. A mask that hides nothing is dropped
the same way.

What lies behind a query is not looked at any more: where it is no number, rows before it stay numbers, as in eager where the mask is left
to the kernel.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..loops.index import index
from .clean import drop_dead
from .formulas import ALWAYS, Choice, Formula, Truth, axis, number_of, simplified, truth_of
from .graph import AtenGraph, Node, Value
from .positions import Positions
from .windows import Windows

aten = torch.ops.aten
_BIASES = {
    aten._scaled_dot_product_cudnn_attention.default: "attn_bias",
    aten._scaled_dot_product_cudnn_attention_backward.default: "attn_bias",
    aten._scaled_dot_product_efficient_attention.default: "attn_bias",
    aten._scaled_dot_product_efficient_attention_backward.default: "attn_bias",
    aten._scaled_dot_product_flash_attention_for_cpu.default: "attn_mask",
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: "attn_mask",
}
"""Fused operators of attention, and the name of the mask that they add."""
_FORWARD = (aten._scaled_dot_product_cudnn_attention.default, aten._scaled_dot_product_efficient_attention.default)
"""Those of GPUs that a kernel of the generator's may stand for."""
_HIDDEN = -1e38
"""In types of float32's range what is added to scores that do not count, if it is not infinite."""
_WIDE_RANGE = ("float32", "bfloat16")
_OF_CUDNN = -65504.0
"""What torch itself writes for it where cuDNN's attention is given truths."""


def leave_to_kernels(graph: AtenGraph) -> None:
    """Rewrites nodes of attention in place."""
    masked = [node for node in graph.nodes if _has_mask(node)]
    if not masked:
        return
    positions = Positions(graph)
    windows, instead = Windows(graph, positions.makers), dict[int, list[Node]]()
    for node in masked:
        if id(node) not in instead and (kept := _pairs(graph, node, positions)) is not None:
            instead |= _without_mask(graph, node, kept, windows)
    if instead:
        graph.nodes = [new for node in graph.nodes for new in instead.get(id(node), [node])]
        drop_dead(graph, positions.found())


def _has_mask(node: Node) -> bool:
    return node.func in _BIASES and isinstance(node.argument(_BIASES[node.func]), Value)


def _without_mask(graph: AtenGraph, node: Node, kept: Truth, windows: Windows) -> dict[int, list[Node]]:
    """The nodes that need no mask, by the identity of those that they stand for; ``kept``: which pairs the mask leaves."""
    behind = Truth(frozenset({index(axis(2)) - index(axis(1))}))
    queries, keys = _lengths(graph, node)
    if kept == ALWAYS or (kept == behind and queries == keys):
        node.set_argument(_BIASES[node.func], None)
        node.set_argument("is_causal", kept != ALWAYS)
        return {id(node): [node]}
    return windows.within_band(node, kept) if node.func in _FORWARD else {}


def _lengths(graph: AtenGraph, node: Node) -> tuple[Any, Any]:
    """How many queries and keys."""
    queries, keys = (graph.metas[node.argument(name).name].sizes[-2] for name in ("query", "key"))
    return queries, keys


def _pairs(graph: AtenGraph, node: Node, positions: Positions) -> Truth | None:
    """Which pairs of a query and a key the node's mask leaves; None where that is not known."""
    if node.argument("dropout_p") not in (None, 0, 0.0) or node.argument("is_causal"):
        return None
    bias = node.argument(_BIASES[node.func])
    found = _behind_padding(positions, bias)
    kept = None if found is None else _kept(found, _hidden_from(node, graph.metas[node.argument("query").name].dtype))
    return None if kept is None else simplified(kept, _lengths(graph, node), graph.sizes)


def _hidden_from(node: Node, dtype: str) -> float:
    """What is added to scores hides them from here on down."""
    if "cudnn" in node.func.name():
        return _OF_CUDNN
    return _HIDDEN if dtype in _WIDE_RANGE else -math.inf


def _kept(bias: Formula, hides: float) -> Truth | None:
    """Which scores count, of what is added to them."""
    number = number_of(bias)
    if number is not None:
        return ALWAYS if number == 0 else None
    if not isinstance(bias, Choice):
        return None
    truth, shown, hidden = truth_of(bias), *sorted((bias.yes, bias.no), reverse=True)
    if truth is None or shown != 0 or hidden > hides:
        return None
    return ~truth


def _behind_padding(positions: Positions, bias: Value) -> Formula | None:
    """What the mask holds; kernels that want rows of a certain length get a part of longer ones, whose ends nobody reads."""
    node = positions.makers.get(bias.name)
    if node is not None and node.func is aten.expand.default:
        node = positions.makers.get(node.args[0].name)
    if node is not None and node.func is aten.slice.Tensor:
        padded = positions.makers.get(node.args[0].name)
        if padded is not None and padded.func is aten.constant_pad_nd.default:
            whole = padded.args[0]
            metas, pads = positions.graph.metas, padded.args[1]
            ends_only = not any(pads[::2])
            if ends_only and metas[whole.name].sizes == metas[node.results[0] or ""].sizes:
                return positions.formula(whole.name)
    return positions.formula(bias.name)
