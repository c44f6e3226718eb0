"""What may be an operand of a graph's node, and where a tensor stands for a number."""

from __future__ import annotations

import operator
from typing import TypeGuard

import torch

from opmill_fake_tensors.wrappers import is_over_mesh, takes_operators

from ..values.base import COMPARISONS
from ..values.tensor import TensorValue


def graph_constant(value: object) -> object:
    """As it may stand in the text of a graph: numbers of numpy as Python's own."""
    if type(value).__module__ == "numpy" and isinstance(value, (float, complex)):
        return complex(value) if isinstance(value, complex) else float(value)
    return value


ARITHMETIC = ("add", "sub", "mul", "truediv")
WHOLE = ("remainder", "fmod", "floor_divide")
COMPARED = tuple(name.strip("_") for name in COMPARISONS)
IN_PLACE = frozenset([*(getattr(operator, f"i{name}") for name in ARITHMETIC), "add_", "sub_", "mul_", "div_"])
WITH_SCALARS = IN_PLACE | {
    *(getattr(operator, name) for name in ARITHMETIC + COMPARED),
    *(getattr(torch, name) for name in ("add", "sub", "mul", "div", *COMPARED)),
    *("add", "sub", "mul", "div", *COMPARED),
    *(operator.mod, operator.floordiv, *WHOLE, *(getattr(torch, name) for name in WHOLE)),
}
"""Operations of two operands that take a tensor for a number, and compute the same with it."""
FILLING: dict[object, int] = {"masked_fill": 3, "masked_fill_": 3, torch.masked_fill: 3, "fill_": 2, torch.where: 3}
"""Others that take one for their last argument, and how many they have."""
LERPING = frozenset(["lerp", "lerp_", torch.lerp])
"""Those that take a tensor of their own type for their third argument, and compute the same with it where that is what they compute in."""


class NotGraphable(Exception):
    """A value cannot be an argument of a graph node."""


def is_plain_on_cpu(value: TensorValue) -> bool:
    """Of tensors over a mesh, those that are no sums still to be made: scalar tensors are to them what Python's numbers are."""
    fake = value.fake
    whole = not takes_operators(type(fake)) or (is_over_mesh(type(fake)) and not any(p.is_partial() for p in fake.placements))
    return whole and fake.device.type == "cpu"


def is_lerped(value: object) -> TypeGuard[TensorValue]:
    """Whether it is a tensor for which ``lerp`` computes in the tensor's own type."""
    return type(value) is TensorValue and is_plain_on_cpu(value) and value.fake.dtype in (torch.float32, torch.float64)
