"""What may be an operand of a graph's node, and where a tensor stands for a number."""

from __future__ import annotations

import operator
import types
from typing import TypeGuard

import torch

from opmill_fake_tensors.wrappers import is_over_mesh, takes_operators

from ..values.base import COMPARISONS, Value
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
WHOLE_NUMBERED = frozenset([operator.mod, operator.floordiv, *WHOLE, *(getattr(torch, name) for name in WHOLE)])
"""Operations of remainders and whole quotients."""
WITH_SCALARS = (
    IN_PLACE
    | WHOLE_NUMBERED
    | {
        *(getattr(operator, name) for name in ARITHMETIC + COMPARED),
        *(getattr(torch, name) for name in ("add", "sub", "mul", "div", *COMPARED)),
        *("add", "sub", "mul", "div", *COMPARED),
    }
)
"""Operations of two operands that take a tensor for a number, and compute the same with it."""
FILLING: dict[object, int] = {"masked_fill": 3, "masked_fill_": 3, torch.masked_fill: 3, "fill_": 2, torch.fill: 2, torch.where: 3}
"""Others that take one for their last argument, and how many they have."""
LERPING = frozenset(["lerp", "lerp_", torch.lerp])
"""Those that take a tensor of their own type for their third argument, and compute the same with it where that is what they compute in."""


class NotGraphable(Exception):
    """A value cannot be an argument of a graph node. ``hint``: what is to be done about it; without one, what is for all of them."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


TURNED = "torch takes lists and tuples there: hand over list(...) of it"
GIVEN_INSTEAD: dict[type, str] = {
    **dict.fromkeys((set, frozenset, types.GeneratorType, type({}.keys()), type({}.values()), type({}.items()), map, zip, filter), TURNED),
    types.FunctionType: "write what it does with operators on whole tensors, or call the operator outside of the compiled function",
}
"""By the class of an argument, what is to be done about it."""


def not_graphable(value: Value) -> NotGraphable:
    """The exception for an argument that no graph holds."""
    kind = value.python_type()
    if kind.__module__ == "numpy":
        return NotGraphable(value.describe(), "hand over Python's own number: bool(...), float(...) or int(...) of it")
    return NotGraphable(value.describe(), GIVEN_INSTEAD.get(kind, "hand over what the operator needs of it: a tensor, a number"))


def is_plain(value: TensorValue) -> bool:
    """Of tensors over a mesh, those that are no sums still to be made: scalar tensors are to them what Python's numbers are."""
    fake = value.fake
    return not takes_operators(type(fake)) or (is_over_mesh(type(fake)) and not any(p.is_partial() for p in fake.placements))


def is_plain_on_cpu(value: TensorValue) -> bool:
    """A plain tensor on a processor."""
    return is_plain(value) and value.fake.device.type == "cpu"


def is_lerped(value: object) -> TypeGuard[TensorValue]:
    """Whether it is a tensor for which ``lerp`` computes in the tensor's own type."""
    return type(value) is TensorValue and is_plain(value) and value.fake.dtype in (torch.float32, torch.float64)
