"""The module that a backend is given: a graph whose Python text is written when somebody asks for it."""

from __future__ import annotations

import weakref
from typing import Any

import torch

WRITTEN = ("_code", "_lineno_map", "_prologue_start")
"""What ``recompile`` leaves in a module, besides its class's ``forward``."""


class _Forward:
    """``forward`` until it is asked for. Each graph module has a class of its own, which knows the module."""

    def __get__(self, module: torch.fx.GraphModule | None, owner: Any = None) -> object:
        of_class = module is None
        module = owner.__dict__["only"]() if of_class and "only" in owner.__dict__ else module
        if module is None:
            return self
        module.recompile()  # gives the class its own
        return owner.forward if of_class else module.forward


def _interpreted(module: torch.nn.Module, *args: object) -> object:
    return torch.fx.Interpreter(module).run(*args)


class Recorded(torch.fx.GraphModule):
    """A ``GraphModule`` of the graph and of what it holds. A backend that compiles the graph itself never runs its text: a twentieth of a
    capture's time where there are many nodes."""

    forward: Any = _Forward()
    begins = False
    """Of the class of one module: whether it is being made."""

    def __init__(self, root: dict[str, object], graph: torch.fx.Graph, class_name: str = "GraphModule") -> None:
        own: Any = type(self)  # Python 3.13 loses sight of cycles through a module's dictionary that something was taken out of
        own.only, own.begins = weakref.ref(self), True
        super().__init__(root, graph, class_name)

    def recompile(self) -> Any:
        """Python's text for the graph as it is now. At first, not before it is needed."""
        own = type(self)
        if own.begins:
            own.begins = False
            return None
        try:
            return super().recompile()
        except SyntaxError:  # an argument that no text stands for, such as a generator of random numbers
            own.forward = _interpreted
            return None

    def __getattr__(self, name: str) -> Any:
        if name in WRITTEN and "_graph" in self.__dict__:
            self.recompile()
            return self.__dict__[name]
        return super().__getattr__(name)

    def __reduce__(self) -> tuple[object, ...]:
        _ = self.code  # what is put away is this module's dictionary
        return super().__reduce__()

    def __reduce_package__(self, exporter: torch.package.PackageExporter) -> tuple[object, ...]:
        _ = self.code
        return super().__reduce_package__(exporter)


__all__ = ["Recorded"]
