"""Outputs that are views of a wrapper whose gradient is wanted: they are made of the wrapper itself, at each call.

Autograd knows views of wrappers as it knows those of plain tensors: which tensor they are of, and how the gradient of one gets there. What
is put together of the tensors inside would be no view of the wrapper, so a graph gives none. Where all that leads from an input to an
output is views, the program's own steps are taken once more, outside of the compiled graph."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
_VIEWS = frozenset(
    "t transpose swapaxes swapdims adjoint permute movedim moveaxis unsqueeze squeeze view view_as reshape reshape_as flatten unflatten "
    "ravel expand expand_as broadcast_to select narrow diagonal unfold chunk split tensor_split hsplit vsplit dsplit unbind".split()
)
"""What gives views, by the name of the method or function. Some copy where no view is possible: then eager copies, too."""
_ATTRIBUTES = ("T", "mT")
_SIZES = (aten.sym_size.int, aten.sym_numel.default)
_OF_NUMBERS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg)
_OUTSIDE = (fx.Node, int, slice, type(None), type(Ellipsis))
"""What may be an index of a view: a node has to be a number."""
Graph = fx.GraphModule


@dataclass(frozen=True)
class Views:
    """``steps`` are those that lead to the outputs of these ``positions``; ``inputs`` are the graph's placeholders, in order."""

    inputs: tuple[fx.Node, ...]
    steps: tuple[fx.Node, ...]
    positions: tuple[tuple[int, fx.Node], ...]

    def among(self, results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """All outputs in order: ``results`` are the others."""
        known: dict[Any, Any] = dict(zip(self.inputs, inputs, strict=True))
        for node in self.steps:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            target: Any = node.target
            known[node] = getattr(args[0], target)(*args[1:], **kwargs) if node.op == "call_method" else target(*args, **kwargs)
        found = list(results)
        for position, node in self.positions:
            found.insert(position, known[node])
        return found


def views_taken_out(gm: Graph, wanted: Collection[int]) -> tuple[Graph, Views | None]:
    """The graph without the outputs that are nothing but views of the inputs of these positions, and what makes them. A graph that writes,
    or that turns recording for the backward on or off, is left as it is."""
    inputs = tuple(node for node in gm.graph.nodes if node.op == "placeholder")
    [last] = [node for node in gm.graph.nodes if node.op == "output"]
    outputs = last.args[0]
    roots = {inputs[k] for k in wanted}
    if not roots or not isinstance(outputs, (tuple, list)) or not all(map(_is_plain, gm.graph.nodes)):
        return gm, None
    roots_of = _roots(gm)
    positions = tuple(
        (k, node)
        for k, node in enumerate(outputs)
        if isinstance(node, fx.Node) and node.op != "placeholder" and roots_of.get(node) in roots
    )
    if not positions:
        return gm, None
    needed: set[fx.Node] = set()
    todo = [node for _, node in positions]
    while todo:
        node = todo.pop()
        needed.add(node)
        todo += node.all_input_nodes
    steps = tuple(node for node in gm.graph.nodes if node in needed and node not in inputs)
    return _without(gm, {k for k, _ in positions}, steps), Views(inputs, steps, positions)


def _without(gm: Graph, taken: Collection[int], steps: Sequence[fx.Node]) -> Graph:
    """The graph without the outputs of these positions, and without the steps that lead to them alone."""
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            kept = tuple(value for k, value in enumerate(node.args[0]) if k not in taken)
            graph.output(fx.node.map_arg(kept, env.__getitem__))
        else:
            env[node] = graph.node_copy(node, env.__getitem__)
    for node in reversed(steps):
        if not env[node].users:
            graph.erase_node(env[node])
    module = fx.GraphModule(gm, graph)
    module.meta.update(gm.meta)
    return module


def _roots(gm: Graph) -> dict[fx.Node, fx.Node]:
    """The input that each view is of, and itself of each input; what else there is is not among them."""
    roots: dict[fx.Node, fx.Node] = {}
    numbers: set[fx.Node] = set()
    for node in gm.graph.nodes:
        needed = node.all_input_nodes
        if node.op == "placeholder":
            if isinstance(node.meta.get("val"), (int, torch.SymInt)):
                numbers.add(node)
            else:
                roots[node] = node
        elif node.target in _SIZES:
            numbers.update({node} if needed[0] in roots else ())
        elif node.target in _OF_NUMBERS:
            numbers.update({node} if numbers.issuperset(needed) else ())
        elif _is_view(node) and needed and needed[0] is node.args[0] and needed[0] in roots:
            others = needed[1:] if node.target is operator.getitem else [n for n in needed if n not in roots]
            if numbers.issuperset(others):
                roots[node] = roots[needed[0]]
    return roots


def _is_view(node: fx.Node) -> bool:
    """Whether a node gives a view of its first argument, or an item of several ones."""
    if not node.args:
        return False
    if node.op == "call_method":
        return node.target in _VIEWS
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        index = node.args[1]
        return all(isinstance(each, _OUTSIDE) for each in (index if isinstance(index, tuple) else (index,)))
    if node.target is getattr:
        return node.args[1] in _ATTRIBUTES
    return _function(node.target)


def _function(target: Any) -> bool:
    name = getattr(target, "__name__", "")
    return name in _VIEWS and getattr(torch, name, None) is target


def _is_plain(node: fx.Node) -> bool:
    """Whether a node writes nothing that was there before, and changes no mode."""
    if node.op in ("placeholder", "output", "get_attr"):
        return True
    name = str(node.target if node.op == "call_method" else getattr(node.target, "__name__", ""))
    if isinstance(node.target, torch._ops.OpOverload):
        return not node.target._schema.is_mutable
    if node.op not in ("call_method", "call_function") or isinstance(node.target, torch._ops.HigherOrderOperator):
        return False
    writes = (name.endswith("_") and not name.endswith("__")) or node.target is operator.setitem
    mode = any(word in name for word in ("grad", "inference", "autocast", "_enter", "_exit", "implicit_replication"))
    return not writes and not mode and not {"out", "inplace"} & node.kwargs.keys()


__all__ = ["Views", "views_taken_out"]
