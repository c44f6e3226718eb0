"""Graphs that are called without gradients and turn them on (``with torch.enable_grad()``, or what follows a break in a ``no_grad`` block).

All else knows only graphs that begin with gradients, or have none. Such a graph is compiled and called as one that begins with gradients
and turns them off at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

_SWITCH = torch._C._set_grad_enabled


def turns_gradients_on(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a graph that begins as the thread is now, without gradients, computes with them."""
    if torch.is_grad_enabled() or torch.is_inference_mode_enabled() or not any(map(_computed_with, _parts(gm))):
        return False
    return any(isinstance(t, torch.Tensor) and t.requires_grad for t in (*inputs, *gm.parameters(), *gm.buffers()))


def _parts(gm: torch.fx.GraphModule) -> Iterator[torch.fx.Graph]:
    """The graph, and those that it holds."""
    return (part.graph for part in gm.modules() if isinstance(part, torch.fx.GraphModule))


def _computed_with(graph: torch.fx.Graph) -> bool:
    """Whether anything is called behind a switch that turns gradients on."""
    enabled = False
    for node in graph.nodes:
        if node.target is _SWITCH:
            enabled = bool(node.args[0])
        elif node.target is _WRAPPED and node.args[0]:
            return True
        elif enabled and node.op.startswith("call_"):
            return True
    return False


_WRAPPED = getattr(torch.ops.higher_order, "wrap_with_set_grad_enabled", None)


def turned_off_first(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The same graph, to be called with gradients: it turns them off before anything runs. It shares the tensors of ``gm``."""
    graph = torch.fx.Graph()
    result = graph.graph_copy(gm.graph, {})
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        graph.call_function(_SWITCH, (False,))
    graph.output(result)
    same = torch.fx.GraphModule(gm, graph)
    same.meta.update(gm.meta)
    return same
