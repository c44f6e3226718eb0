"""``with torch.device(...)``: in its block functions that make tensors are told the device, as torch's own mode does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._device import _device_constructors

from ...values.base import Value
from ...values.constant import ConstantValue, is_none
from ..registry import handles, named

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)


@handles(torch.device.__enter__)
def enter(vm: Interpreter, device: Value) -> Value:
    """The begin of ``with torch.device(...)``."""
    vm.recorder.devices.append((device, vm.place()))
    return device


@handles(torch.device.__exit__)
def leave(vm: Interpreter, device: Value, *exc: Value) -> Value:
    """The end of such a block; refused (FE074) where it began before the graph."""
    if not vm.recorder.devices:
        vm.unsupported("FE074", "the end of a block with a device", "it began before the graph")
    vm.recorder.devices.pop()
    return NONE


def with_device(vm: Interpreter, obj: object, kwargs: dict[str, Value]) -> dict[str, Value]:
    """The arguments by name of a function of torch in the innermost such block."""
    if obj not in _device_constructors() or not is_none(kwargs.get("device", NONE)):
        return kwargs
    return kwargs | {"device": vm.recorder.devices[-1][0]}


@named("torch.get_default_device")
def get_default_device(vm: Interpreter) -> Value | None:
    """``torch.get_default_device()``: that of the innermost block; outside of blocks the real function answers."""
    return vm.recorder.devices[-1][0] if vm.recorder.devices else None
