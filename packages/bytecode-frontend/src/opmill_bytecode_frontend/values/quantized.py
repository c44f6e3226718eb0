"""Quantised tensors that captured code makes: integers in the graph, and what they mean. Torch has no quantised tensors without data."""

from __future__ import annotations

from typing import Callable, Hashable, NoReturn

import torch

from .base import MISSING, Machine, Value
from .constant import ConstantValue
from .tensor import TensorValue

OF_INTEGERS = frozenset("shape size dim ndim numel device layout nelement ndimension".split())
"""What a quantised tensor and its integers say alike."""


class QuantizedValue(Value):
    """The result of ``torch.quantize_per_tensor``. ``ints``: what ``int_repr()`` gives; ``numbers``: an operator that makes floats of
    these. What else is done with one ends the graph."""

    def __init__(self, ints: TensorValue, scale: float, zero_point: int, dtype: torch.dtype, numbers: Callable[..., object]) -> None:
        self.ints, self.scale, self.zero_point, self.dtype, self.numbers = ints, scale, zero_point, dtype, numbers

    def python_type(self) -> type:
        return torch.Tensor

    def real(self) -> object:
        return MISSING

    def describe(self) -> str:
        return "a quantised tensor"

    def refuse(self, vm: Machine, *args: object, **kwargs: object) -> NoReturn:
        vm.unsupported("FE030", f"use of {self.describe()}", "torch has none without data", "torchao's tensors are captured")

    def truth(self, vm: Machine) -> bool:
        self.refuse(vm)

    def key(self, vm: Machine) -> Hashable:
        self.refuse(vm)

    iterate = setattr = refuse

    def find_method(self, name: str) -> Callable[..., Value] | None:
        if not callable(getattr(torch.Tensor, name, None)):
            return None
        return lambda vm, *args, **kwargs: self.method(vm, name, list(args), kwargs)

    def method(self, vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        known = {"q_scale": self.scale, "q_zero_point": self.zero_point, "qscheme": torch.per_tensor_affine}
        if name in OF_INTEGERS:
            return self.ints.method(vm, name, args, kwargs)
        if args or kwargs:
            self.refuse(vm)
        if name in known:
            return ConstantValue(known[name])
        if name == "int_repr":
            return self.ints.method(vm, "clone", [], {})
        if name == "dequantize":
            return vm.recorder.call_function(vm, self.numbers, [self.ints, ConstantValue(self.scale), ConstantValue(self.zero_point)], {})
        self.refuse(vm)

    def special(self, vm: Machine, name: str, args: list[Value]) -> Value | None:
        return None if not callable(getattr(torch.Tensor, name, None)) else self.method(vm, name, args, {})

    def getattr(self, vm: Machine, name: str) -> Value:
        known = {"dtype": self.dtype, "is_quantized": True, "requires_grad": False}
        if name in known:
            return ConstantValue(known[name])
        found = getattr(torch.Tensor, name, None)
        if name in OF_INTEGERS and not callable(found):
            return vm.getattr(self.ints, name)
        return super().getattr(vm, name) if callable(found) else self.refuse(vm)


__all__ = ["QuantizedValue"]
