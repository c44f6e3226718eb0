"""Two masked tensors in one operator: torch asks their data whether the masks are alike, and refuses masks that differ. The program goes on
as if they were, and the graph checks when it runs that they are."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.masked import MaskedTensor

from ..values.assertions import demanded_of, may_demand
from ..values.tensor import TensorValue
from ..values.wrapped import of_object
from .questions import name_of

if TYPE_CHECKING:
    from ..values.base import Machine

COMPARING = frozenset(
    "add sub subtract mul multiply div divide true_divide truediv floor_divide floordiv fmod remainder mod atan2 arctan2 logaddexp "
    "logaddexp2 nextafter maximum minimum fmax fmin and or xor bitwise_and bitwise_or bitwise_xor lshift rshift bitwise_left_shift "
    "bitwise_right_shift eq ne le ge lt gt not_equal less_equal greater_equal less greater".split()
)
"""Operators of two masked tensors that compare their masks."""
OWN = (operator.lt, torch.Tensor.__lt__)
"""What the class does itself, by the mask of the first."""
MASK = "_masked_mask"
DIFFER = False, "ValueError", "Input masks must match. If you need support for this, please open an issue on Github."
"""The answer that is refused, and how."""


def compares(target: object) -> bool:
    """Whether an operation, in place or not, compares the masks of its operands."""
    name = target if isinstance(target, str) else name_of(target)
    if any(target is each for each in OWN) or name == "__lt__":
        return False
    plain = name.strip("_")
    in_place = plain.removeprefix("i") if getattr(target, "__module__", None) == "_operator" else plain
    return plain in COMPARING or in_place in COMPARING


def demand_masks(vm: Machine, target: object, args: Sequence[object]) -> None:
    """Demands that the masks of the two operands are alike, where the operation asks that, and nothing tells yet that they are not."""
    pair = [value for value in args[:2] if type(value) is TensorValue and type(value.fake) is MaskedTensor]
    if len(pair) < 2 or not compares(target) or not may_demand(vm):
        return
    masks = [getattr(value.fake, MASK) for value in pair]
    strided = all(mask.layout is torch.strided for mask in masks)
    if not strided or masks[0].shape != masks[1].shape or _differ_now(pair):
        return
    first, second = (of_object(vm, value, MASK) for value in pair)
    assert isinstance(first, TensorValue)
    alike = first.method(vm, "eq", [second], {}).method(vm, "all", [], {})
    demanded_of(vm, alike, DIFFER)


def _differ_now(pair: Sequence[TensorValue]) -> bool:
    """Whether two tensors from outside have masks that differ: the operation will be refused."""
    real = [value.obj for value in pair if value.obj is not None]
    return len(real) == 2 and not torch.equal(*(getattr(each, MASK) for each in real))


__all__ = ["compares", "demand_masks"]
