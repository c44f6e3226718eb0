"""Outputs that are views of a wrapper, an input or another output: they are made of the wrapper itself, at each call.

Autograd knows views of wrappers as it knows those of plain tensors: which tensor they are of, with which their writes are counted, and how
the gradient of one gets there. What is put together of the tensors inside would be no view of the wrapper, so a graph gives none. Where
all that leads from an input, or from what a graph computes, to an output is views, the program's own steps are taken once more, outside
of the compiled graph. Of several views of what is computed that is a result of the graph as well, for them to be views of."""

from __future__ import annotations

import contextlib
import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.wrappers import take_apart, takes_operators

aten = torch.ops.aten
_VIEWS = frozenset(
    "t transpose swapaxes swapdims adjoint permute movedim moveaxis unsqueeze squeeze view view_as reshape reshape_as flatten unflatten "
    "ravel expand expand_as broadcast_to select narrow diagonal unfold chunk split tensor_split hsplit vsplit dsplit unbind detach".split()
)
"""What gives views, by the name of the method or function. Some copy where no view is possible: then eager copies, too."""
_ATTRIBUTES = ("T", "mT")
_SIZES = (aten.sym_size.int, aten.sym_numel.default)
_OF_NUMBERS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg)
_OUTSIDE = (fx.Node, int, slice, type(None), type(Ellipsis))
"""What may be an index of a view: a node has to be a number."""
Graph = fx.GraphModule


_WRITES_ELSEWHERE = frozenset(
    "t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ resize_ resize_as_ set_ detach_ requires_grad_ rename_".split()
)
"""What changes more of a tensor than its elements."""


@dataclass(frozen=True)
class Views:
    """``steps`` are those that lead to the outputs of these ``positions``; ``inputs`` are the graph's placeholders, in order; ``computed``:
    what the graph itself gives that views are of, by position among its results. ``written``: what a write gives is what it writes to.
    ``modes``: whether autograd records a step, where the program says so."""

    inputs: tuple[fx.Node, ...]
    steps: tuple[fx.Node, ...]
    positions: tuple[tuple[int, fx.Node], ...]
    computed: tuple[tuple[int, fx.Node], ...] = ()
    written: Mapping[fx.Node, fx.Node] = field(default_factory=dict)
    modes: Mapping[fx.Node, bool] = field(default_factory=dict)
    more: int = 0
    """How many of the graph's results, the last ones, are no outputs."""

    @property
    def said(self) -> str:
        """What differs from the graph with all its outputs."""
        return repr([[k for k, _ in self.positions], self.more])

    def among(self, results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """All outputs in order: ``results`` are the others."""
        known: dict[Any, Any] = dict(zip(self.inputs, inputs, strict=True))
        known |= {node: results[k] for k, node in self.computed}

        def value(node: fx.Node) -> Any:
            return known[self.written.get(node, node)]

        for node in self.steps:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
            target: Any = getattr(type(args[0]), str(node.target)) if node.op == "call_method" else node.target
            with torch.set_grad_enabled(self.modes[node]) if node in self.modes else contextlib.nullcontext():
                known[node] = target(*args, **kwargs)
        found = list(results[: len(results) - self.more])
        for position, node in self.positions:
            found.insert(position, value(node))
        return found


def views_taken_out(gm: Graph, wrappers: Collection[int], calm: Sequence[Any] | None = None) -> tuple[Graph, Views | None]:
    """The graph without the outputs that are nothing but views of the inputs of these positions, or of other wrappers among the outputs,
    and what makes them. ``calm``: the inputs, or fakes of them, where nothing requires grad. A graph that turns recording for the backward
    on or off is left as it is, and so is one that writes, unless it is calm."""
    inputs = tuple(node for node in gm.graph.nodes if node.op == "placeholder")
    [last] = [node for node in gm.graph.nodes if node.op == "output"]
    outputs = last.args[0]
    writes = [node for node in gm.graph.nodes if _writes(node)]
    written = _what_is_written(writes)
    if not isinstance(outputs, (tuple, list)) or (writes and calm is None) or written is None:
        return gm, None
    if not all(_is_plain(node, calm is not None) for node in gm.graph.nodes):
        return gm, None
    roots_of = _roots(gm, written)
    ends = [written.get(node, node) if isinstance(node, fx.Node) else None for node in outputs]
    given = {inputs[k] for k in wrappers}
    found = [(k, node, root) for k, node in enumerate(ends) if node is not None and (root := roots_of.get(node, node)) is not node]
    often = Counter(root for _, _, root in found)
    shown = {root for root in often if root in given or (not writes and root not in inputs and (often[root] > 1 or root in ends))}
    found = [each for each in found if each[2] in shown]
    if not found:
        return gm, None
    taken = {k for k, _, _ in found}
    kept = [node for k, node in enumerate(ends) if k not in taken]
    roots = dict.fromkeys(root for _, _, root in found if root not in inputs)
    more = [root for root in roots if root not in kept]
    steps = _between(gm, [node for _, node, _ in found], {*inputs, *roots}, written)
    computed = tuple(([*kept, *more].index(root), root) for root in roots)
    views = Views(inputs, steps, tuple((k, node) for k, node, _ in found), computed, written, _modes(gm, steps), len(more))
    if writes and not _share_memory(views, [inputs.index(root) for _, _, root in found], calm or ()):
        return gm, None
    return _without(gm, taken, more, steps), views


def _modes(gm: Graph, steps: Collection[fx.Node]) -> dict[fx.Node, bool]:
    """Of these steps, those before which the program says whether autograd records, and what it says."""
    found: dict[fx.Node, bool] = {}
    mode: bool | None = None
    for node in gm.graph.nodes:
        if node.target is torch._C._set_grad_enabled:
            mode = node.args[0]
        elif mode is not None and node in steps:
            found[node] = mode
    return found


def _share_memory(views: Views, roots: Sequence[int], inputs: Sequence[Any]) -> bool:
    """Whether all that is inside of each view lies in the memory of what is inside of the input that it is of: classes may copy where
    others give views, and a copy is not what it was once the other is written."""
    fakes = (leaf for x in inputs if isinstance(x, torch.Tensor) for leaf in take_apart(x)[1] if isinstance(leaf, FakeTensor))
    context: Any = next((leaf.context for leaf in fakes), contextlib.nullcontext())
    try:
        with context, torch.no_grad():
            made = views.among((), inputs)
        return all(_memories(view) <= _memories(inputs[root]) for view, root in zip(made, roots, strict=True))
    except Exception:  # an operator of a class that does not know this view
        return False


def _memories(tensor: Any) -> set[int]:
    return {getattr(leaf, "meta", leaf).untyped_storage()._cdata for leaf in take_apart(tensor)[1]}


def _between(gm: Graph, ends: Sequence[fx.Node], known: Collection[fx.Node], written: Mapping[fx.Node, fx.Node]) -> tuple[fx.Node, ...]:
    """The steps that lead to the ends from what is known."""
    needed: set[fx.Node] = set()
    todo = list(ends)
    while todo:
        node = todo.pop()
        node = written.get(node, node)
        if node not in known and node not in needed:
            needed.add(node)
            todo += node.all_input_nodes
    return tuple(node for node in gm.graph.nodes if node in needed)


def _without(gm: Graph, taken: Collection[int], more: Sequence[fx.Node], steps: Sequence[fx.Node]) -> Graph:
    """The graph without the outputs of these positions, with ``more`` at their end, and without the steps that lead to views alone."""
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            kept = tuple(value for k, value in enumerate(node.args[0]) if k not in taken)
            graph.output(fx.node.map_arg((*kept, *more), env.__getitem__))
        else:
            env[node] = graph.node_copy(node, env.__getitem__)
    for node in reversed(steps):
        if not env[node].users:
            graph.erase_node(env[node])
    module = fx.GraphModule(gm, graph)
    module.meta.update(gm.meta)
    return module


def _writes(node: fx.Node) -> bool:
    """Whether a node writes to its first argument."""
    name = str(node.target if node.op == "call_method" else getattr(node.target, "__name__", ""))
    if node.op not in ("call_method", "call_function"):
        return False
    return (name.endswith("_") and not name.endswith("__")) or node.target is operator.setitem


def _what_is_written(writes: Sequence[fx.Node]) -> dict[fx.Node, fx.Node] | None:
    """By step that writes, what it writes to, which is what it gives. None where one of them may do more than that."""
    found: dict[fx.Node, fx.Node] = {}
    for node in writes:
        to = node.args[0] if node.args else None
        if not isinstance(to, fx.Node) or node.target in _WRITES_ELSEWHERE or getattr(node.target, "__name__", "") in _WRITES_ELSEWHERE:
            return None
        found[node] = found.get(to, to)
    return found


def _is_computed(node: fx.Node) -> bool:
    """Whether a step gives a wrapper."""
    value = _value(node)
    return node.op in ("call_method", "call_function") and takes_operators(type(value)) and not hasattr(type(value), "trigger_wait")


def _value(node: fx.Node) -> Any:
    """What a node gave when the graph was captured; None where nobody has noted it."""
    return node.meta.get("val", node.meta.get("example_value"))


def _roots(gm: Graph, written: Mapping[fx.Node, fx.Node]) -> dict[fx.Node, fx.Node]:
    """The input, or the wrapper that is computed, that each view is of, and itself of each of these; what else there is is not among
    them."""
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
        elif node.target in _OF_NUMBERS and numbers.issuperset(needed):
            numbers.add(node)
        elif node in written:
            if written[node] in roots:
                roots[node] = roots[written[node]]
        elif _is_view(node) and needed and needed[0] is node.args[0] and needed[0] in roots:
            others = needed[1:] if node.target is operator.getitem else [n for n in needed if n not in roots]
            if numbers.issuperset(others):
                roots[node] = roots[needed[0]]
        elif _is_computed(node):
            roots[node] = node
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


def _is_plain(node: fx.Node, calm: bool) -> bool:
    """Whether a node changes no mode, and writes no more than what `_writes` finds. ``calm``: recording for the backward may be turned off,
    as nothing is recorded."""
    if node.op in ("placeholder", "output", "get_attr") or _writes(node):
        return True
    name = str(node.target if node.op == "call_method" else getattr(node.target, "__name__", ""))
    if isinstance(node.target, torch._ops.OpOverload):
        return not node.target._schema.is_mutable
    if node.op not in ("call_method", "call_function") or isinstance(node.target, torch._ops.HigherOrderOperator):
        return False
    if calm and node.target is torch._C._set_grad_enabled:
        return type(node.args[0]) is bool
    mode = any(word in name for word in ("grad", "inference", "autocast", "_enter", "_exit", "implicit_replication"))
    return not mode and not {"out", "inplace"} & node.kwargs.keys()


__all__ = ["Views", "views_taken_out"]
