"""Graphs whose tensors are wrappers (DTensor, quantised tensors): compiled as graphs of the plain tensors inside."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from opmill_fake_tensors.wrappers import takes_operators

MARK = "wrappers"
"""Of a graph module's ``meta``, where whoever recorded it met a wrapper."""
INSIDE = "wrappers inside"
"""The same of one whose inputs and outputs are plain."""
KEY = "key of the wrappers"
"""Of a graph module whose inputs and outputs are plain: what names the graph with wrappers that it was made of."""
ANEW = "made anew"
"""Of such a one that is not taken from the store: what it finds out about its ends is wanted."""


def has_wrappers(gm: torch.fx.GraphModule, inputs: Sequence[object]) -> bool:
    """Whether there are wrappers among a graph's inputs and outputs, as far as is known."""
    return bool(gm.meta.get(MARK)) or any(takes_operators(type(x)) for x in inputs)
