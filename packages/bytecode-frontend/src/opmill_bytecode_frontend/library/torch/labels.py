"""Labels for profilers: captured code notes them, and what runs shows them while a profiler looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...effects.labels import leave_range, leave_region
from ...values.base import Value
from ...values.constant import ConstantValue
from ..registry import named

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)


def said(vm: Interpreter, name: Value) -> str:
    """The label's text; the place of one that is computed from what is not known at capture."""
    if isinstance(name, ConstantValue) and isinstance(name.value, str):
        return name.value
    return f"label at {vm.frame.where()}"


@named("torch.autograd.profiler.record_function.__enter__")
def enter(vm: Interpreter, region: Value) -> Value:
    """The begin of a ``record_function`` block."""
    vm.recorder.labels.enter(said(vm, vm.getattr(region, "name")), region)
    return region


@named("torch.autograd.profiler.record_function.__exit__")
def leave(vm: Interpreter, region: Value, *exc: Value) -> Value:
    """The end of such a block; one that began before the graph ends when the program runs."""
    if not vm.recorder.labels.leave(region):
        vm.effects.calls.append((leave_region, [region], {}))
    return NONE


def refuse_without_nvtx(vm: Interpreter) -> None:
    """Raises what torch raises where it was built without nvtx."""
    try:
        torch.cuda.nvtx.range_push("opmill looks whether this works")
        torch.cuda.nvtx.range_pop()
    except RuntimeError as error:
        vm.throw_real(error)


@named("torch.cuda.nvtx.range_push")
def push(vm: Interpreter, msg: Value) -> Value:
    """``nvtx.range_push()``: the depth of the range."""
    refuse_without_nvtx(vm)
    vm.recorder.labels.enter(said(vm, msg), None)
    return ConstantValue(sum(label.region is None for label in vm.recorder.labels.open) - 1)


@named("torch.cuda.nvtx.range_pop")
def pop(vm: Interpreter) -> Value:
    """``nvtx.range_pop()``: how many ranges are open behind it."""
    refuse_without_nvtx(vm)
    if not vm.recorder.labels.leave(None):
        vm.effects.calls.append((leave_range, [], {}))
    return ConstantValue(sum(label.region is None for label in vm.recorder.labels.open))


@named("torch.cuda.nvtx.mark")
def mark(vm: Interpreter, msg: Value) -> Value:
    """``nvtx.mark()``."""
    refuse_without_nvtx(vm)
    vm.recorder.labels.enter(said(vm, msg), None)
    vm.recorder.labels.leave(None)
    return NONE
