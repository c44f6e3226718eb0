"""Making parameters and tensors of given values in captured code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...values.arrays import ArrayValue
from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.sequence import SequenceValue
from ...values.tensor import TensorValue
from ..registry import handles, named

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


@handles(torch.nn.Parameter)
def parameter(vm: Interpreter, data: Value | None = None, requires_grad: Value = ConstantValue(True)) -> Value:
    """Without recorded gradients a new parameter is its data under another type."""
    if data is None:
        data = vm.recorder.call_function(vm, torch.empty, [ConstantValue(0)], {})
    wanted = vm.truth(requires_grad)
    if wanted and torch.is_grad_enabled():
        vm.unsupported(
            "FE012", "making a parameter while gradients are recorded", "it is a leaf that only the captured code sees", "make it outside"
        )
    kind = data.python_type()
    if kind not in (torch.Tensor, torch.nn.Parameter) and issubclass(kind, torch.Tensor):
        return marked_as_parameter(vm, data, requires_grad)
    made: Any = data.method(vm, "detach", [], {})
    if not isinstance(made, TensorValue):
        vm.throw(TypeError, f"cannot make a parameter of {data.python_type().__name__}")
    made.fake.requires_grad_(wanted)
    made.late_leaf = wanted
    made.cls = torch.nn.Parameter
    return made


def marked_as_parameter(vm: Interpreter, data: Value, requires_grad: Value) -> Value:
    """A tensor of another class stays of that class, and an attribute says that it is a parameter."""
    detached = vm.call(vm.getattr(data, "detach"), [], {})
    made = vm.call(vm.getattr(detached, "requires_grad_"), [requires_grad], {})
    kind, found = data.python_type(), made.python_type()
    if found is not kind:
        message = (
            f"Creating a Parameter from an instance of type {kind.__name__} requires that detach() returns an instance of the same type, "
            f"but return type {found.__name__} was found instead. To use the type as a Parameter, please correct the detach() semantics "
            "defined by its __torch_dispatch__() implementation."
        )
        vm.throw(RuntimeError, message)
    vm.setattr(made, "_is_param", ConstantValue(True))
    return made


@named("torch._dynamo.mutation_guard.GenerationTracker.tag", "torch._dynamo.mutation_guard._GenerationTracker.tag")
def count_among_the_new(vm: Interpreter, *args: Value) -> Value:
    """Where torch's own compiler has run in the process, each new module is noted by it in a dictionary of weak references, for its own
    captures."""
    return ConstantValue(None)


def tensor_class(cls: type, dtype: torch.dtype | None) -> None:
    """``torch.Tensor(...)`` and ``torch.FloatTensor(...)``: of a sequence its values, of integers an empty tensor of that size."""

    @handles(cls)
    def make(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
        kind: dict[str, Value] = {"dtype": ConstantValue(dtype or torch.get_default_dtype())}
        if len(args) == 1 and isinstance(args[0], TensorValue) and not kwargs:
            return vm.recorder.call_function(vm, torch.ops.aten.alias.default, [args[0]], {})
        if len(args) == 1 and isinstance(args[0], ArrayValue) and not args[0].is_number and not kwargs:
            return vm.call_builtin(torch.as_tensor, [args[0]], kind)
        if len(args) == 1 and isinstance(args[0], SequenceValue) and args[0].cls is not torch.Size and not kwargs:
            return vm.recorder.call_function(vm, torch.tensor, [args[0]], kind)
        if kwargs:
            vm.unsupported("FE012", f"making a {cls.__name__} with keyword arguments", "", "use torch.tensor or torch.empty")
        sizes = list(args) if not (len(args) == 1 and isinstance(args[0], SequenceValue)) else vm.unpack(args[0])
        return vm.recorder.call_function(vm, torch.empty, sizes or [ConstantValue(0)], kind)


tensor_class(torch.Tensor, None)
for _name, _dtype in {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "BoolTensor": torch.bool,
    "HalfTensor": torch.float16,
    "ByteTensor": torch.uint8,
}.items():
    tensor_class(getattr(torch, _name), _dtype)
