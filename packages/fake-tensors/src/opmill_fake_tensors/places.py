"""Operators that are run on zeros, to see what their kernels take and give, must not follow these beyond memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

_PLACES = frozenset(("pivots", "LU_pivots"))
"""Arguments that hold places, counted from one: before torch 2.13 kernels follow them without a look, and a zero leads beyond memory."""


def lead_into_memory(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Makes ones of the zeros in tensors that an operator is given as places."""
    names = [a.name for a in func._schema.arguments] if isinstance(func, torch._ops.OpOverload) else ()
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        if name in _PLACES and isinstance(value, torch.Tensor):
            value.fill_(1)


__all__ = ["lead_into_memory"]
