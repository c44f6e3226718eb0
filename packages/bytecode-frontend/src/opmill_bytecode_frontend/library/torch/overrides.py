"""Torch functions called with tensors whose classes define ``__torch_function__``: the protocol as torch has it.

Each class is asked once, the more special one first. Torch's own implementation computes with the tensors below, and gives the result the
class."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.overrides

from opmill_fake_tensors.wrappers import takes_operators
from opmill_guards.source import Pinned

from ...interpretation.operating import answered
from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.functions import BuiltinValue
from ...values.mapping import DictValue
from ...values.objects import ObjectValue
from ...values.overriding import OverridingTensor, asked, has_functions_only, overriding
from ...values.sequence import ListValue, SequenceValue, TupleValue
from ...values.tensor import TensorValue
from ..registry import handles, named
from .function_modes import ask_mode
from .told import TENSOR_BASE, answers, is_told, name_of_attribute, named_arguments, reported

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


#: Attributes that are not the same on the tensor below.
OF_OBJECTS = frozenset("grad _grad grad_fn data _backward_hooks _base _version".split())


class OverridesOff(Value):
    """``torch._C.DisableTorchFunctionSubclass()``. A graph that ends in its block would leave it on: it ends before."""

    def python_type(self) -> type:
        return cast(type, torch._C.DisableTorchFunctionSubclass)

    def m___enter__(self, vm: Interpreter) -> Value:
        vm.recorder.overrides_off += 1
        return ConstantValue(None)

    def m___exit__(self, vm: Interpreter, *exc: Value) -> Value:
        vm.recorder.overrides_off -= 1
        return ConstantValue(None)


@handles(torch._C.DisableTorchFunctionSubclass)
def without_overrides(vm: Interpreter) -> Value:
    """``torch._C.DisableTorchFunctionSubclass()``: a block in which classes are not asked."""
    return OverridesOff()


ASKING = (torch.overrides.has_torch_function, torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic)


@handles(*ASKING)
def has_torch_function(vm: Interpreter, *args: Value) -> Value:
    """Whether one of the arguments overrides torch functions."""
    told = not vm.recorder.overrides_off and any(asked(arg) or has_answering(arg) for arg in args)
    return ConstantValue(told or bool(vm.recorder.modes.on))


@handles(torch.overrides.handle_torch_function)
@named("torch.overrides.handle_torch_function")
def handle_torch_function(vm: Interpreter, function: Value, relevant: Value, *args: Value, **kwargs: Value) -> Value:
    """``torch.overrides.handle_torch_function()``: asks the innermost mode, or the classes of the relevant arguments."""
    if vm.recorder.modes.on:
        plain = [v.cls for v in vm.unpack(relevant) if isinstance(v, TensorValue) and answers(v.cls)]
        return ask_mode(vm, function.real(), args, kwargs, plain)
    found = asked(relevant)
    if not found and has_answering(relevant):  # the class answers where the function is called with fakes
        return vm.recorder.call_function(vm, function.real(), list(args), kwargs)
    told = [v for v in getattr(relevant, "items", ()) if isinstance(v, (ObjectValue, TensorValue)) and answers(v.cls)]
    return ask_classes(vm, function, told or found, args, kwargs)


def has_answering(value: object, depth: int = 2) -> bool:
    """Whether there are tensors in a value whose class takes operators and is told of torch's functions, too."""
    if isinstance(value, TensorValue):
        return takes_operators(value.cls) and answers(value.cls)
    items = getattr(value, "items", None)
    return depth > 0 and isinstance(items, list) and any(has_answering(item, depth - 1) for item in items)


def overridden(vm: Interpreter, obj: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """What a function of torch gives for such tensors; None where there are none, or for another function."""
    found = [t for value in (*args, *kwargs.values()) for t in asked(value)]
    if not found or not is_of_tensors(obj):
        return None
    if vm.recorder.overrides_off or (obj in torch.overrides.get_ignored_functions() and not is_told(obj)):
        tensors = [t for t in found if isinstance(t, OverridingTensor)]
        return computed(vm, obj, tensors, args, kwargs) if len(tensors) == len(found) else None
    function = reported(obj) if isinstance(obj, types.MethodDescriptorType | types.WrapperDescriptorType) else obj
    in_python = isinstance(function, types.FunctionType)
    return ask_classes(vm, BuiltinValue(function, Pinned(function, function.__name__)), found, args, kwargs, bool(kwargs) or in_python)


def is_of_tensors(obj: object) -> bool:
    """Whether classes that override torch's functions are asked about it."""
    if isinstance(obj, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return obj.__objclass__ is TENSOR_BASE
    if obj in ASKING:
        return False
    if isinstance(obj, types.MethodWrapperType):
        return isinstance(obj.__self__, (types.GetSetDescriptorType, property))
    return (getattr(obj, "__module__", None) or "").split(".")[0] == "torch" or getattr(obj, "__self__", None) is getattr(
        torch._C, "_VariableFunctions", None
    )


def ask_classes(
    vm: Interpreter,
    function: Value,
    found: Sequence[ObjectValue | TensorValue],
    args: Sequence[Value],
    kwargs: dict[str, Value],
    named: bool = True,
) -> Value:
    """The first answer that ``__torch_function__`` of the classes gives, derived ones first, as torch asks them; ``named``: whether they
    are given a dictionary of arguments by name, which functions in C give where there are some."""
    classes: list[type] = []
    for cls in dict.fromkeys(t.cls for t in found):
        place = next((k for k, known in enumerate(classes) if issubclass(cls, known)), len(classes))
        classes.insert(place, cls)
    given = named_arguments(vm, kwargs)
    for cls in classes:
        first = next(t for t in found if t.cls is cls)
        method = vm.getattr(vm.wrap(cls) if issubclass(cls, torch.Tensor) else first, "__torch_function__")
        told = [function, TupleValue([vm.wrap(c) for c in classes]), TupleValue(list(args))]
        result = vm.call(method, [*told, given] if named else told, {})
        if answered(result):
            return result
    name = getattr(function.real(), "__name__", "function")
    return vm.unsupported("FE051", f"{name} of tensors of {', '.join(c.__name__ for c in classes)}", "no class has an implementation of it")


@named("torch._tensor.Tensor.__torch_function__")
def of_plain_tensors(
    vm: Interpreter, cls: Value, function: Value, kinds: Value, args: Value | None = None, kwargs: Value | None = None
) -> Value:
    """Torch's own implementation."""
    own = cls.constant()
    if not all(issubclass(own, kind.constant()) for kind in vm.unpack(kinds)):
        return ConstantValue(NotImplemented)
    named_args = (
        {}
        if kwargs is None or not isinstance(kwargs, DictValue)
        else dict(zip([k.constant() for k in kwargs.key_values(vm)], kwargs.all_values(vm)))
    )
    vm.recorder.overrides_off += 1
    try:
        result = vm.call(function, vm.unpack(args) if args is not None else [], named_args)
    finally:
        vm.recorder.overrides_off -= 1
    plain = function.real() in torch.overrides.get_default_nowrap_functions()
    return result if plain else converted(result, own)


@named("torch._tensor._convert")
def convert(vm: Interpreter, result: Value, cls: Value) -> Value:
    """The result of a torch function as the class that the default ``__torch_function__`` gives."""
    return converted(result, cls.constant())


def converted(result: Value, cls: type) -> Value:
    """The tensors in a result as those of a class, where they are not."""
    if cls is torch.Tensor:
        return result
    if isinstance(result, TensorValue) and not issubclass(result.cls, cls):
        return OverridingTensor(result, cls)
    if isinstance(result, OverridingTensor) and not issubclass(result.cls, cls):
        return OverridingTensor(result.inner, cls)
    if (
        isinstance(result, SequenceValue)
        and result.cls is not torch.Size
        and any(isinstance(v, (TensorValue, OverridingTensor)) for v in result.items)
    ):
        items: list[Value] = [converted(v, cls) for v in result.items]
        return ListValue(items) if isinstance(result, ListValue) else TupleValue(items, result.cls)
    return result


def computed(vm: Interpreter, obj: object, found: Sequence[OverridingTensor], args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """What the function gives for the tensors below; one that is given back is the one that was given."""
    if isinstance(obj, types.MethodWrapperType):
        attribute: Any = obj.__self__
        name = name_of_attribute(attribute)
        if name in OF_OBJECTS:
            vm.unsupported("FE031", f"attribute {name} of a tensor", "it belongs to the tensor object, not to its value")
        return vm.getattr(found[0].inner, name)
    result = vm.call_builtin(obj, [below(a) for a in args], {name: below(v) for name, v in kwargs.items()})
    return next((t for t in found if t.inner is result), result)


def below(value: Any) -> Value:
    """What an overriding tensor, also one in lists or tuples, wraps."""
    if isinstance(value, OverridingTensor):
        return value.inner
    if overriding(value):
        items = [below(v) for v in value.items]
        return ListValue(items) if isinstance(value, ListValue) else TupleValue(items, value.cls)
    return value


@handles(torch.Tensor.as_subclass)
def as_subclass(vm: Interpreter, tensor: Value, cls: Value) -> Value:
    """``tensor.as_subclass()``."""
    plain = tensor.inner if isinstance(tensor, OverridingTensor) else tensor
    wanted = cls.constant()
    if wanted is torch.Tensor:
        return vm.recorder.call_function(vm, torch.ops.aten.alias.default, [plain], {})
    return made(vm, plain, wanted)


@handles(torch.Tensor._make_subclass)
def make_subclass(vm: Interpreter, cls: Value, tensor: Value, requires_grad: Value | None = None) -> Value:
    """``Tensor._make_subclass()``: detached; one that requires gradients is refused (FE012)."""
    if requires_grad is not None and vm.truth(requires_grad):
        vm.unsupported("FE012", "making a tensor that requires grad in captured code")
    plain = tensor.inner if isinstance(tensor, OverridingTensor) else tensor
    return made(vm, plain.method(vm, "detach", [], {}), cls.constant())


def made(vm: Interpreter, plain: Value, cls: type) -> Value:
    """A tensor of a class of the program over a plain one; refuses classes that take operators apart (FE051)."""
    if not isinstance(plain, TensorValue) or not has_functions_only(cls):
        vm.unsupported("FE051", f"tensor of class {cls.__qualname__}", "classes that take operators apart are not captured")
    vm.recorder.overriding = True
    return OverridingTensor(plain, cls)
