"""The smallest part of a captured graph that still shows a fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

Shows = Callable[[fx.GraphModule, Sequence[Any]], bool]
"""Whether a graph, called with these inputs, shows the fault. The inputs are its own to change."""


class Smallest:
    """Cuts a graph down while it shows the fault. ``inputs``: those of a call that does. ``tried``: how many graphs were looked at."""

    def __init__(self, gm: fx.GraphModule, inputs: Sequence[Any], shows: Shows) -> None:
        self.gm, self.inputs, self.shows = gm, inputs, shows
        self.calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
        self.tried = 0

    def found(self) -> tuple[fx.GraphModule, list[Any]]:
        """The smallest graph that was found, and inputs for it. What operators take from outside of it are inputs.

        First the shortest beginning that shows the fault, then the shortest end of that, then operators in between are left out one by
        one: the order of the search is that of `git bisect`, and as there, a fault that comes and goes may end it early."""
        end = self._least(lambda n: self._holds(self.calls[:n]), len(self.calls))
        kept = self.calls[:end]
        start = self._most(lambda n: self._holds(kept[n:]), len(kept))
        kept = kept[start:]
        for node in list(kept):
            rest = [other for other in kept if other is not node]
            if rest and self._holds(rest):
                kept = rest
        return self.part(kept)

    @staticmethod
    def _least(holds: Callable[[int], bool], high: int) -> int:
        """The least n up to ``high`` for which it holds; ``high`` is known to."""
        low = 0
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high

    @staticmethod
    def _most(holds: Callable[[int], bool], size: int) -> int:
        """The greatest n below ``size`` for which it holds; 0 is known to."""
        low, high = 0, size
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return low

    def _holds(self, kept: Sequence[fx.Node]) -> bool:
        self.tried += 1
        try:
            return self.shows(*self.part(kept))
        except Exception:
            return False  # a part that cannot run alone shows nothing

    def part(self, kept: Sequence[fx.Node]) -> tuple[fx.GraphModule, list[Any]]:
        """The graph of these operators alone, and what they are given in a run of the whole."""
        wanted = set(kept)
        graph, copies = fx.Graph(), {}
        outside: list[fx.Node] = []
        for node in self.gm.graph.nodes:
            if node in wanted:
                outside += [used for used in node.all_input_nodes if used not in wanted and used not in outside]
        for node in outside:
            if node.op == "get_attr":
                copies[node] = graph.node_copy(node)
            else:
                copies[node] = graph.placeholder(node.name)
        for node in kept:
            copies[node] = graph.node_copy(node, lambda used: copies[used])
        results = [node for node in kept if not node.users or any(user not in wanted for user in node.users)]
        graph.output(tuple(copies[node] for node in results))
        values = self._values_before(kept[0])
        inputs = [values[node] for node in outside if node.op != "get_attr"]
        return fx.GraphModule(self.gm, graph), inputs

    def _values_before(self, first: fx.Node) -> Mapping[fx.Node, Any]:
        """What a run of the whole graph has computed when it comes to an operator, and after it what later ones need."""
        return _Values(self.gm).until(first, cloned(list(self.inputs)))


class _Values(fx.Interpreter):
    """Runs a graph, and keeps what was given to operators from ``first`` on, as it was when ``first`` was reached."""

    def until(self, first: fx.Node, inputs: list[Any]) -> dict[fx.Node, Any]:
        self.args_iter = iter(inputs)
        torch.manual_seed(0)
        seen: dict[fx.Node, Any] = {}
        reached = False
        for node in self.graph.nodes:
            if node is first:
                reached, seen = True, dict(zip(self.env, cloned(list(self.env.values())), strict=True))
            if node.op == "output":
                break
            try:
                self.env[node] = self.run_node(node)
            except Exception:  # what eager raises may be what is looked for: nothing comes after it
                break
            if reached:
                seen[node] = cloned([self.env[node]])[0]
        return seen


def cloned(values: list[Any]) -> list[Any]:
    """Copies of tensors (in lists, tuples and dictionaries, too) that share memory as the originals do; they have no history."""
    leaves, spec = pytree.tree_flatten(values)
    storages: dict[int, torch.UntypedStorage] = {}
    tensors: dict[int, torch.Tensor] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in tensors:
            tensors[id(value)] = _cloned(value, storages)
        return tensors[id(value)]

    copied: list[Any] = pytree.tree_unflatten([copy(leaf) for leaf in leaves], spec)
    return copied


def _cloned(value: torch.Tensor, storages: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    with torch.no_grad():
        if value.layout is not torch.strided or type(value) not in (torch.Tensor, torch.nn.Parameter):
            return value.detach().clone().requires_grad_(value.requires_grad)
        key = value.untyped_storage()._cdata
        if key not in storages:
            storages[key] = value.untyped_storage().clone()
        made = torch.empty(0, dtype=value.dtype, device=value.device)
        made.set_(storages[key], value.storage_offset(), value.shape, value.stride())
        if value.is_conj():
            made = made.conj()
        if value.is_neg():
            made = torch._neg_view(made)
    return made.requires_grad_(value.requires_grad)
