"""Laws of aten graphs: every value is made once, before it is used, and is known by its looks."""

from __future__ import annotations

import torch

from ..errors import GraphError
from .graph import AtenGraph, OutputTensor, values_in

BUG = "this is a bug of the compiler: please report it"


def verify_module(gm: torch.fx.GraphModule) -> None:
    """Raises GraphError GI041 where an FX graph is not in order: as it came, or as the step before left it."""
    try:
        gm.graph.lint()
    except (AssertionError, RuntimeError, ValueError) as broken:
        hint = "whoever made the graph uses a value before it is made, or a module or name that is not there"
        raise GraphError("GI041", f"an FX graph breaks a law: {broken}", hint=hint) from None


def verify_graph(graph: AtenGraph) -> None:
    """Raises GraphError GI041 with the first law that is broken."""
    known = {*graph.inputs, *graph.held, *graph.constants}
    for node in graph.nodes:
        for value in values_in((node.args, node.kwargs)):
            if value.name not in known:
                raise _broken(f"{value.name} is used before it is made", node.origin)
        for result in filter(None, node.results):
            if result in known:
                raise _broken(f"{result} is made twice", node.origin)
            if result not in graph.metas:
                raise _broken(f"it is not known what {result} looks like", node.origin)
            known.add(result)
        known.update(symbol for symbol, _, _ in node.binds)
    for target, source in graph.mutations.items():
        if target not in (*graph.inputs, *graph.held) or source not in known:
            raise _broken(f"{target} is written with {source}")
    for out in graph.outputs:
        if isinstance(out, OutputTensor) and out.value not in known:
            raise _broken(f"{out.value} leaves and is made nowhere")
    if len(graph.held) < len(graph.held_tensors):  # those behind are given when the plan is bound
        raise _broken(f"{len(graph.held)} held values, {len(graph.held_tensors)} tensors")


def _broken(law: str, where: str = "") -> GraphError:
    return GraphError("GI041", f"an aten graph breaks a law: {law}", where=where, hint=BUG)


__all__ = ["verify_graph", "verify_module"]
