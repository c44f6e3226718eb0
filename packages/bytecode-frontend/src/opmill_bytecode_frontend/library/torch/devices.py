"""``with torch.device(...)``: in its block functions that make tensors are told the device, as torch's own mode does it. And what programs
ask of the devices that there are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.utils._device import _device_constructors

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

from ...values.base import NotConstant, Value
from ...values.constant import ConstantValue, is_none
from ...values.warned import called_at_capture
from ..registry import handles, named, receives_function

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)


@handles(torch.device.__enter__)
def enter(vm: Interpreter, device: Value) -> Value:
    """The begin of ``with torch.device(...)``; refused (FE029) under a torch function mode, which is told of the device."""
    if vm.recorder.modes.on:
        mode = vm.recorder.modes.on[-1].python_type().__qualname__
        vm.unsupported("FE029", f"a block with a device under the torch function mode {mode}")
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


FACTS = "get_device_capability get_device_name get_device_properties get_arch_list get_gencode_flags is_bf16_supported is_tf32_supported"


@receives_function(*(f"torch.{module}.{name}" for module in ("cuda", "xpu") for name in FACTS.split()))
def fact_of_hardware(vm: Interpreter, function: Callable[..., object], *args: Value, **kwargs: Value) -> Value | None:
    """What a device is able to do: it does not change while the process lives. Which device is the current one is assumed, where it is
    that one that is asked."""
    try:
        plain, given = [vm.plain(a) for a in args], {k: vm.plain(v) for k, v in kwargs.items()}
    except NotConstant:
        return None
    found = called_at_capture(vm, function, plain, given)
    module = sys.modules[function.__module__]
    if not any(type(d) is int or getattr(d, "index", None) is not None for d in (*plain, *given.values())):
        current = module.current_device()
        name = f"{function.__module__}.current_device()"
        vm.guard(Predicate(Pinned(module.current_device, name), lambda asked: asked() == current, f"== {current}"))
    return vm.wrap(found, Pinned(found, f"{function.__qualname__}()")) if type(found).__module__.startswith("torch") else vm.fresh(found)
