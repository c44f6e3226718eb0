"""Graphs inside of the graph: what a higher-order operator runs.

Values of outside come in through placeholders, made where they are first read; nothing leaves but what the region's end says."""

from __future__ import annotations

from typing import Any

import torch

SIZE = "size"
"""In the ``meta`` of a node that gives a size or a stride of an input: the size's name."""


def _called(self: Body, *args: object) -> object:
    return self.forward(*args)


class Body(torch.fx.GraphModule):
    """The module of a region, which is none of the program's: no hook that is registered for all modules hears of its calls."""

    def recompile(self) -> torch.fx.graph.PythonCode:
        made = super().recompile()
        type(self).__call__ = _called  # type: ignore[method-assign]  # of the class that each graph module has for itself
        return made


class Region:
    """``lifted``: nodes of outside with the placeholders that stand for them, in order. ``attributes``: the regions inside, by name."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.lifted: dict[torch.fx.Node, torch.fx.Node] = {}
        self.attributes: dict[str, object] = {}
        self.last: torch.fx.Node | None = None
        self.count = 0

    def placeholder(self, name: str) -> torch.fx.Node:
        """A new input, behind the others."""
        self.count += 1
        name = f"{name}_{self.count}"
        first = next(iter(self.graph.nodes), None)
        if self.last is not None:
            with self.graph.inserting_after(self.last):
                self.last = self.graph.placeholder(name)
        elif first is not None:
            with self.graph.inserting_before(first):
                self.last = self.graph.placeholder(name)
        else:
            self.last = self.graph.placeholder(name)
        return self.last

    def lift(self, node: torch.fx.Node) -> torch.fx.Node:
        """What stands here for a node of the graph outside."""
        if node not in self.lifted:
            made = self.lifted[node] = self.placeholder(node.name)
            made.meta.update({SIZE: node.meta[SIZE]} if SIZE in node.meta else {})
        return self.lifted[node]

    def take(self, nodes: list[torch.fx.Node]) -> None:
        """Makes the inputs behind those that are no lifted nodes stand for these, in this order; all that is lifted is among them."""
        own = [n for n in self.graph.nodes if n.op == "placeholder" and n not in self.lifted.values()]
        anchor = own[-1] if own else self.graph._root
        for node in [self.lift(n) for n in nodes]:
            anchor.append(node)
            anchor = node
        self.last = anchor if anchor is not self.graph._root else None

    def module(self, outputs: Any) -> torch.fx.GraphModule:
        """The region as a module that returns ``outputs``, nodes of it and constants."""
        self.graph.output(outputs)
        return Body(self.attributes, self.graph)
