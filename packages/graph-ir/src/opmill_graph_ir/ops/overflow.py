"""Numbers that the type of an operator's result cannot hold: torch refuses these in some operators and computes with them in others."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from ..capture.graph import Meta, Node

_SMALL = 127
"""What every type holds."""


def overflows(node: Node, meta: Meta) -> bool:
    """Whether a number among the operator's arguments is beyond what ``meta``'s type holds: then torch's own operator shall decide."""
    given = [*node.args, *node.kwargs.values()]
    if all(not isinstance(v, (int, float)) or abs(v) <= _SMALL for v in given):
        return False
    places = _numbers(node.func)
    return any(
        not _holds(meta.dtype, v) for k, v in [*enumerate(node.args), *node.kwargs.items()] if k in places and isinstance(v, (int, float))
    )


@functools.cache
def _numbers(func: Any) -> frozenset[int | str]:
    """Positions and names of arguments that are numbers, not sizes or dimensions."""
    arguments = getattr(getattr(func, "_schema", None), "arguments", ())
    return frozenset(place for k, a in enumerate(arguments) if "number" in str(a.type).lower() for place in (k, a.name))


def _holds(dtype: str, value: float) -> bool:
    kind = getattr(torch, dtype)
    if dtype == "bool" or kind.is_complex or abs(value) <= _SMALL:
        return True
    if kind.is_floating_point:
        return abs(value) <= torch.finfo(kind).max or (not math.isfinite(value) and dtype != "float8_e4m3fn")
    return torch.iinfo(kind).min <= value <= torch.iinfo(kind).max


__all__ = ["overflows"]
