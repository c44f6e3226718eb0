"""``torch.compile(backend="opmill")``: graphs that cannot be compiled run as they are, with a warning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from opmill_fake_tensors.telling import tell

from .backend import compile_graph
from .errors import GraphError, GraphWarning


def torch_backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Sequence[Any]]:
    """The compiled graph, or, where something in it cannot be captured (a higher-order operator, say), the graph itself and warning
    GI033."""
    try:
        return compile_graph(gm, example_inputs)
    except Exception as error:
        _warn(str(error).strip().splitlines()[0] if isinstance(error, GraphError) else f"{type(error).__name__}: {_first_sentence(error)}")
        return gm.forward


def _first_sentence(error: Exception) -> str:
    return str(error).strip().partition(".Hint")[0].partition("\n")[0].partition(" and mode <")[0][:300]


@lru_cache(None)
def _warn(problem: str) -> None:
    tell(GraphWarning(f"GI033: a graph runs uncompiled\n  why: {problem}"), 4)
