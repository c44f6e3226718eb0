"""How a plan that was taken apart gets what is made of weights, as the store keeps it; and which inputs are weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import torch

HELD = "held"
"""In the ``meta`` of a placeholder: whether it is a parameter, buffer or tensor attribute of a module."""


class Weights(msgspec.Struct, frozen=True, array_like=True):
    """``plan``: the encoded plan that takes the weights, which are the inputs at ``positions`` of the ``count`` there are, and gives what
    is made of them. The other plan holds the weights ``kept`` (positions in ``positions``) and those results behind its own held tensors.
    No contents of weights are in here: they are read when the plan is bound."""

    plan: bytes
    positions: tuple[int, ...]
    kept: tuple[int, ...]
    count: int


def held_inputs(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> tuple[int, ...]:
    """Positions of inputs that are tensors of modules: those that the frontend says are, and parameters."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    return tuple(
        k for k, (node, x) in enumerate(zip(placeholders, inputs, strict=False)) if node.meta.get(HELD) or isinstance(x, torch.nn.Parameter)
    )


__all__ = ["HELD", "Weights", "held_inputs"]
