"""Tensors of classes with a ``__torch_function__`` of their own: objects around a plain tensor that the graph computes with.

Attributes and methods are looked up as on any object; what a call of one of torch's functions does with them says
``library/torch/overrides``."""

from __future__ import annotations

import types
from typing import Hashable

import torch

from opmill_guards.source import Source

from .base import Machine, Value
from .objects import ObjectValue, find_in_mro
from .tensor import TensorValue

OF_TORCH = (torch.Tensor, torch._C.TensorBase)


class OverridingTensor(ObjectValue):
    """``inner`` is the tensor without its class. In the graph an argument is an alias of it, as torch's own functions see it."""

    def __init__(self, inner: TensorValue, cls: type, obj: torch.Tensor | None = None, source: Source | None = None) -> None:
        super().__init__(cls, obj, source)
        self.inner = inner

    def __repr__(self) -> str:
        return f"{self.cls.__name__}({self.inner!r})"

    def generic_getattr(self, vm: Machine, name: str) -> Value:
        owner, raw = find_in_mro(self.cls.__mro__, name)
        if owner in OF_TORCH and isinstance(raw, (types.GetSetDescriptorType, property)) and name not in ("__class__", "__dict__"):
            return vm.call_builtin(getattr(torch.Tensor, name).__get__, [self], {})
        return super().generic_getattr(vm, name)

    def setattr(self, vm: Machine, name: str, value: Value) -> None:
        if hasattr(torch.Tensor, name):
            vm.unsupported("FE032", f"assignment to attribute {name} of a tensor")
        super().setattr(vm, name, value)

    def key(self, vm: Machine) -> Hashable:
        vm.unsupported("FE024", "hash of a tensor")


def overriding(value: object, depth: int = 2) -> list[OverridingTensor]:
    """Such tensors in a value and in the lists and tuples in it, in order."""
    if isinstance(value, OverridingTensor):
        return [value]
    items = getattr(value, "items", None)
    if depth and isinstance(items, list):
        return [found for item in items for found in overriding(item, depth - 1)]
    return []


def asked(value: object, depth: int = 2) -> list[ObjectValue]:
    """Such tensors, and objects that are no tensors whose class has a ``__torch_function__`` (a dictionary of tensors, say), in a
    value and in the lists and tuples in it, in order."""
    if isinstance(value, ObjectValue):  # torch warns of plain methods
        told = isinstance(value, OverridingTensor) or type(find_in_mro(value.cls.__mro__, "__torch_function__")[1]) in (
            classmethod,
            staticmethod,
        )
        return [value] if told else []
    items = getattr(value, "items", None)
    if depth and isinstance(items, list):
        return [found for item in items for found in asked(item, depth - 1)]
    return []


def has_functions_only(cls: type) -> bool:
    """Whether a class of tensors is told of torch's functions, and not of its operators."""
    dispatch, functions = getattr(cls, "__torch_dispatch__", None), getattr(cls, "__torch_function__", None)
    return dispatch is torch._C._disabled_torch_dispatch_impl and functions is not torch._C._disabled_torch_function_impl
