"""Torch function modes (``torch.overrides.TorchFunctionMode``) that captured code enters: their own ``__torch_function__`` is part of
what is captured, and the graph has what it calls. A graph does not end in such a block: it ends before."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeGuard, cast

import torch
import torch.overrides
from torch.utils._device import _device_constructors

from opmill_guards.source import Pinned

from ...errors import Unsupported
from ...interpretation.operating import answered
from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.functions import BuiltinValue
from ...values.overriding import OverridingTensor, asked
from ...values.sequence import TupleValue
from ...values.tensor import TensorValue
from ..registry import handles, named
from .told import TENSOR_BASE, is_told, name_of_attribute, named_arguments, reported, tells_class

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


NONE = ConstantValue(None)
OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_FUNCTIONS_IN_C = getattr(torch.add, "__self__", None)


@named("torch.overrides.TorchFunctionMode.__enter__")
def enter_mode(vm: Interpreter, mode: Value) -> Value:
    """The begin of a block. Under the mode that ``vmap`` of ``flex_attention`` enters, subscripts by scalar tensors do not become
    numbers."""
    if indexes_by_tensors(mode):
        vm.recorder.index_by_tensors += 1
    elif vm.recorder.devices or vm.recorder.regions:
        where = "a block with a device" if vm.recorder.devices else "a function that is a graph of its own"
        vm.unsupported("FE029", f"the torch function mode {mode.python_type().__qualname__} in {where}")
    else:
        vm.recorder.modes.enter(mode, vm.place())
    return mode


@named("torch.overrides.TorchFunctionMode.__exit__")
def leave_mode(vm: Interpreter, mode: Value, *exc: Value) -> Value:
    """The end of a block."""
    if indexes_by_tensors(mode):
        vm.recorder.index_by_tensors -= 1
    elif not vm.recorder.modes.leave():
        name = mode.python_type().__qualname__
        vm.unsupported("FE029", f"the end of a block with the torch function mode {name}", "it began before the graph")
    return NONE


def indexes_by_tensors(mode: Value) -> bool:
    """Whether a mode is that of indexing by tensors."""
    return mode.python_type().__name__ == "TransformGetItemToIndex"


@handles(torch._C._is_torch_function_mode_enabled)
def is_mode_on(vm: Interpreter) -> Value:
    """Whether a mode of captured code is on: a function is not captured under others."""
    return ConstantValue(bool(vm.recorder.modes.on))


def _look_at_modes(function: Callable[..., object]) -> None:
    """What torch's own functions ask to find a mode, and programs: refused where captured code has one, which is not on the stack."""

    @handles(function)
    def look(vm: Interpreter, *args: Value) -> Value:
        if vm.recorder.modes.began:
            vm.unsupported("FE029", "a look at the stack of torch function modes", "those of captured code are not on it")
        return vm.recorder.call_function(vm, function, list(args), {})


for _function in (torch._C._len_torch_function_stack, torch._C._get_function_stack_at):
    _look_at_modes(_function)


def ended_in_block(vm: Interpreter) -> Unsupported:
    """The refusal of a graph that would end in a block."""
    name = vm.recorder.modes.on[0].python_type().__qualname__ if vm.recorder.modes.on else "TorchFunctionMode"
    why = "torch's mode is not on in captured code"
    return Unsupported("FE029", f"a graph break under the torch function mode {name}", why, place=vm.recorder.modes.began[0])


def asked_of_mode(vm: Interpreter, obj: object, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """What the innermost mode that is on answers for a call of one of torch's functions in C; None for others, of which none is told.
    Functions in Python ask themselves."""
    function, tells = cast("Callable[..., object]", obj), False
    if isinstance(obj, types.MethodWrapperType) and is_attribute(obj.__self__):
        tells = True
    elif isinstance(obj, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        if obj.__objclass__ is not TENSOR_BASE or (obj in torch.overrides.get_ignored_functions() and not is_told(obj)):
            return None
        function, tells = reported(obj), tells_class(obj)
    elif isinstance(obj, types.BuiltinFunctionType):
        if obj not in told_functions() and obj.__self__ is not _FUNCTIONS_IN_C:
            return None
        if obj not in told_functions():
            vm.unsupported("FE029", f"{obj.__name__} under a torch function mode", "not all such functions of torch tell one")
    elif not isinstance(obj, OPERATORS):
        return None
    plain = [args[0].cls] if tells and args and isinstance(args[0], TensorValue) else []
    return ask_mode(vm, function, args, kwargs, plain, named=isinstance(obj, OPERATORS))


def ask_mode(
    vm: Interpreter,
    function: Callable[..., object],
    args: Sequence[Value],
    kwargs: dict[str, Value],
    classes: Sequence[type],
    named: bool = True,
) -> Value:
    """The answer of the innermost mode for a call of ``function``. ``classes``: those of plain tensors that it is told;
    ``named``: whether it is given a dictionary of arguments by name though there are none."""
    others = [each.cls for value in (*args, *kwargs.values()) for each in asked(value) if isinstance(each, OverridingTensor)]
    given = named_arguments(vm, kwargs)
    with vm.recorder.modes.asking() as mode:
        attribute, source = isinstance(function, types.MethodWrapperType), Pinned(function, function.__name__)
        told: list[Value] = [BuiltinValue(function, source) if attribute else vm.wrap(function, source)]
        told += [TupleValue([vm.wrap(cls) for cls in dict.fromkeys((*classes, *others))]), TupleValue(list(args))]
        answer = vm.call(vm.getattr(mode, "__torch_function__"), [*told, given] if named or kwargs else told, {})
    if not answered(answer):
        what = f"{function.__name__} under the torch function mode {mode.python_type().__qualname__}"
        vm.unsupported("FE029", what, "it does not answer for it")
    return answer


@functools.cache
def told_functions() -> frozenset[object]:
    """The functions of torch in C of which modes are told; methods of tensors are not among them."""
    told = {f for f in torch.overrides.get_testing_overrides() if isinstance(f, types.BuiltinFunctionType)}
    return frozenset(told | set(_device_constructors()))


def is_attribute(descriptor: object) -> TypeGuard[types.GetSetDescriptorType | property]:
    """Whether it is what gives an attribute of tensors."""
    if isinstance(descriptor, types.GetSetDescriptorType):
        return descriptor.__objclass__ is TENSOR_BASE
    return isinstance(descriptor, property) and vars(torch.Tensor).get(name_of_attribute(descriptor)) is descriptor


__all__ = ["ask_mode", "asked_of_mode", "ended_in_block"]
