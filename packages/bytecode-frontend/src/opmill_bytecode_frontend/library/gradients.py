"""``torch.autograd.Function`` where no gradient is recorded, inference mode, checkpointing."""

from __future__ import annotations

from typing import Any

import torch

from opmill_guards.source import Pinned

from ..values.base import Value
from ..values.constant import ConstantValue
from ..values.functions import BuiltinValue
from ..values.sequence import SequenceValue, TupleValue
from ..values.tensor import TensorValue
from .registry import handles, named

SET_GRAD = torch._C._set_grad_enabled


class ForwardContext:
    """What ``forward`` of a ``torch.autograd.Function`` gets as ``ctx`` when nothing will be differentiated."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_dirty(self, *tensors: Any) -> None:
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Nothing is."""

    def set_materialize_grads(self, value: bool) -> None:
        """There are none."""


@named("torch.autograd.function.Function.apply")
def autograd_function(vm: Any, cls: Value, *args: Value, **kwargs: Value) -> Value:
    """Inlined where gradients are not recorded: forward is then all there is."""
    tensors = [a for a in args if isinstance(a, TensorValue)]
    if torch.is_grad_enabled() and any(t.fake.requires_grad for t in tensors):
        vm.unsupported("FE015", "torch.autograd.Function", "its backward is Python code that the graph cannot hold", "call it under no_grad")
    plain = cls.constant()
    grad = torch.is_grad_enabled()
    if grad:
        vm.call(BuiltinValue(SET_GRAD), [ConstantValue(False)], {})
    context = vm.call(vm.wrap(ForwardContext, Pinned(ForwardContext, "ForwardContext")), [vm.fresh((False,) * len(args))], {})
    separate = plain.setup_context is not torch.autograd.function._SingleLevelFunction.setup_context
    forward = vm.getattr(cls, "forward")
    result = vm.call(forward, list(args) if separate else [context, *args], kwargs)
    if grad:
        vm.call(BuiltinValue(SET_GRAD), [ConstantValue(True)], {})
    dirty = vm.unpack(vm.getattr(context, "dirty"))
    if isinstance(result, SequenceValue) and result.cls is tuple:
        return TupleValue([passed_through(vm, v, tensors, dirty) for v in result.values(vm)])
    return passed_through(vm, result, tensors, dirty)


def passed_through(vm: Any, result: Value, inputs: list[TensorValue], dirty: list[Value]) -> Value:
    """An input that is returned comes back as a view of itself, unless it was changed in place."""
    if isinstance(result, TensorValue) and any(result is t for t in inputs) and not any(result is d for d in dirty):
        return result.method(vm, "view_as", [result], {})
    return result


@named("torch.autograd.grad_mode.inference_mode.__enter__")
def enter_inference_mode(vm: Any, manager: Value) -> Value:
    """Recorded as no_grad: what is made inside is an ordinary tensor afterwards, which may do more than eager's."""
    mode = vm.truth(vm.getattr(manager, "mode"))
    manager.opened = (torch.is_grad_enabled(), vm.recorder.inference)  # type: ignore[attr-defined]
    vm.call(BuiltinValue(SET_GRAD), [ConstantValue(not mode)], {})
    vm.recorder.inference = mode
    return ConstantValue(None)


@named("torch.autograd.grad_mode.inference_mode.__exit__")
def leave_inference_mode(vm: Any, manager: Value, *exc: Value) -> Value:
    grad, vm.recorder.inference = manager.opened  # type: ignore[attr-defined]
    vm.call(BuiltinValue(SET_GRAD), [ConstantValue(grad)], {})
    return ConstantValue(None)


@handles(torch.is_inference_mode_enabled)
def is_inference_mode_enabled(vm: Any) -> Value:
    recorded = vm.recorder.inference
    return ConstantValue(torch.is_inference_mode_enabled() if recorded is None else recorded)


@named("torch.utils.checkpoint.checkpoint")
def checkpoint(vm: Any, function: Value, *args: Value, **kwargs: Value) -> Value:
    for option in ("use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"):
        kwargs.pop(option, None)
    if torch.is_grad_enabled():
        vm.unsupported("FE016", "activation checkpointing while gradients are recorded")
    return vm.call(function, list(args), kwargs)

