"""Floats that are not assumed among the operands of an operator: what stands for them in the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from ..values.base import Value
from ..values.constant import ConstantValue
from ..values.data_dependent import LateFloat
from ..values.floating import FloatNumber
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from .recorder import Recorder

Given = Mapping[str, Value]
Rule = Callable[["Recorder", TensorValue, Given], Value | None]
NOTHING = ConstantValue(None)


def changes(value: Value | None) -> bool:
    """Whether a value is a float that is not assumed."""
    return type(value) in (FloatNumber, LateFloat)


def scalar(recorder: Recorder, number: Value | None, like: TensorValue) -> Value | None:
    """The tensor that stands for a number beside another: of that one's own type. None stays."""
    if number is None or (type(number) is ConstantValue and number.value is None):
        return NOTHING
    if changes(number):
        double = recorder.scalars.double_of(number, like.fake)
    elif type(number) is ConstantValue and type(number.value) in (int, float):
        return recorder.call_function(
            recorder.vm, torch.scalar_tensor, [number], {"dtype": ConstantValue(like.fake.dtype), "device": ConstantValue(like.fake.device)}
        )
    else:
        return None
    return recorder.call_method(recorder.vm, "to", [double, ConstantValue(like.fake.dtype)], {})


def in_place(given: Given) -> bool:
    """Whether an operator writes to its tensor, or may."""
    said = given.get("inplace")
    return said is not None and not (type(said) is ConstantValue and said.value is False)


__all__ = ["Given", "Rule", "changes", "in_place", "scalar"]
