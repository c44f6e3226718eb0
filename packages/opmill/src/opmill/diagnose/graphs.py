"""The graphs of a program as it runs, each with the inputs of its first call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from msgspec import Struct
from torch import fx

from .minimize import cloned


class Captured(Struct):
    """A graph that the frontend captured, and the inputs of its first call (None: it was never called)."""

    gm: fx.GraphModule
    inputs: list[Any] | None = None
    grad_mode: bool = True


class CapturingBackend:
    """Runs each graph as it is, and keeps it with what it was first called with."""

    sizes_of_data = True

    def __init__(self) -> None:
        self.graphs: list[Captured] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        captured = Captured(gm)
        self.graphs.append(captured)

        def run(*inputs: Any) -> Any:
            if captured.inputs is None:
                captured.inputs, captured.grad_mode = cloned(list(inputs)), torch.is_grad_enabled()
            return gm.forward(*inputs)

        return run
