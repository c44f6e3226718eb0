"""``torch.narrow``: of how many items, and from which on, may be known from data alone."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

from opmill_guards.source import Pinned

from ...values.base import Value
from ...values.number import SymbolicNumber
from ...values.tensor import TensorValue
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

NARROW = torch.narrow


@handles(NARROW)
def narrow_of_torch(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``torch.narrow()``"""
    tensor = args[0] if args else kwargs.get("input")
    if not isinstance(tensor, TensorValue):
        return vm.recorder.call_function(vm, NARROW, list(args), kwargs)
    return narrow(vm, tensor, *args[1:], **{name: value for name, value in kwargs.items() if name != "input"})


@handles(torch.Tensor.narrow)
def narrow(vm: Interpreter, tensor: TensorValue, *args: Value, **kwargs: Value) -> Value:
    """``tensor.narrow()``"""
    given = dict(zip(("dim", "start", "length"), args)) | kwargs
    if len(args) + len(kwargs) == 3 and given.keys() == {"dim", "start", "length"}:
        bounds = {name: given[name].as_bound(vm) for name in ("start", "length")}
        if any(only_data_tell(vm, bound) for bound in bounds.values()):
            return vm.call(vm.wrap(part, Pinned(part, "part")), [tensor, given["dim"], *bounds.values()], {})
    return vm.recorder.call_method(vm, "narrow", [tensor, *args], kwargs)


def only_data_tell(vm: Interpreter, value: Value) -> bool:
    """Whether it is an integer that is not known before the graph."""
    return type(value) is SymbolicNumber and value.python_type() is int and not vm.recorder.numbers.is_of_inputs(value.number)


def part(tensor: torch.Tensor, dim: int, start: int, length: int) -> torch.Tensor:
    """Two slices that give the same: a slice never raises, so that what ``narrow`` refuses is checked."""
    size = tensor.size(dim)
    torch._check(start >= -size)
    torch._check(start <= size)
    rest = torch.ops.aten.slice.Tensor(tensor, dim, start, sys.maxsize)
    torch._check(length >= 0)
    torch._check(length <= rest.size(dim))
    return torch.ops.aten.slice.Tensor(rest, dim, 0, length)


__all__ = ["narrow", "only_data_tell"]
