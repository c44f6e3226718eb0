"""Which function torch says that it was called, to classes and modes that define ``__torch_function__``."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.overrides

from ...values.base import Machine, Value
from ...values.constant import ConstantValue
from ...values.mapping import DictValue

TENSOR_BASE = torch._C.TensorBase
_ONE = torch.ones(1, dtype=torch.int64)
CALLS: tuple[tuple[object, ...], ...] = ((), (_ONE,), (0,), (0, _ONE), ((1,),), ((1,), 1), ((1,), (1,)))
"""Arguments with which some call of any method of tensors gets as far as to ask."""
_ASKED_NEVER = torch._C._disabled_torch_function_impl


def answers(cls: type) -> bool:
    """Whether functions of torch in Python, which tell of plain tensors too, count a class."""
    return getattr(cls, "__torch_function__", _ASKED_NEVER) is not _ASKED_NEVER


class _Asked(torch.Tensor):
    """Keeps what its ``__torch_function__`` was told."""

    told: object = None

    @classmethod
    def __torch_function__(cls, func: object, types: object, args: object = (), kwargs: object = None) -> torch.Tensor:
        cls.told = func
        return torch.zeros(1)


def reported(method: Any) -> Any:
    """The function that a class is told of where this method of tensors in C is called: operators go by another name."""
    return told_of(method) or method if method.__name__.startswith("__") else method


def is_told(function: object) -> bool:
    """Whether classes are told of a function that torch lists as one of which they are not: of some methods in C they are."""
    return isinstance(function, types.MethodDescriptorType) and told_of(function) is not None


def named_arguments(vm: Machine, kwargs: dict[str, Value]) -> DictValue:
    """The dictionary of arguments by name that ``__torch_function__`` is given."""
    given = DictValue({})
    for name, value in kwargs.items():
        given.store(vm, ConstantValue(name), value)
    return given


def name_of_attribute(descriptor: types.GetSetDescriptorType | property) -> str:
    """The name under which it gives something of a tensor."""
    return str(getattr(descriptor.fget if isinstance(descriptor, property) else descriptor, "__name__", ""))


@functools.cache
def told_of(method: Any) -> Any:
    """What a class is told where this method of tensors in C is called; None where nothing, as far as is known."""
    probe = torch.ones(1, dtype=torch.int64).as_subclass(_Asked)
    for args in CALLS:
        _Asked.told = None
        try:
            method(probe, *args)
        except Exception:
            continue
        if _Asked.told is not None:
            return _Asked.told
    return None


class _Asking(torch.overrides.TorchFunctionMode):
    """Keeps which classes it was told."""

    told: object = None

    def __torch_function__(self, func: object, types: object, args: object = (), kwargs: object = None) -> torch.Tensor:
        self.told = types
        return torch.zeros(1)


@functools.cache
def tells_class(method: Callable[..., object]) -> bool:
    """Whether a mode is told the class of the plain tensor of which this method in C is called: it is where there are no arguments."""
    probe = torch.ones(1, dtype=torch.int64)
    for args in CALLS:
        with _Asking() as asking:
            try:
                method(probe, *args)
            except Exception:
                continue
        if asking.told is not None:
            return asking.told == (torch.Tensor,)
    return False


__all__ = ["TENSOR_BASE", "answers", "is_told", "name_of_attribute", "named_arguments", "reported", "tells_class"]
