"""Rounding, roots, products and tensors of numbers that are computed from sizes; of others they are computed at capture."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from opmill_fake_tensors import sized
from opmill_guards.source import Pinned

from ...values.base import NotConstant, Value
from ...values.constant import ConstantValue, is_none
from ...values.data_dependent import LateFloat
from ...values.functions import BuiltinValue
from ...values.number import SymbolicNumber, UndecidedTruth
from ...values.objects import ObjectValue
from ...values.sequence import SequenceValue, TupleValue
from ...values.tensor import TensorValue
from ..dispatch import fold, torch_call
from ..registry import handles, named
from ..standard.mathematics import function_of_float
from .number_tensors import FULL, as_end, put_together

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

LINSPACE, ONE_HOT, TENSOR = torch.linspace, torch.nn.functional.one_hot, torch.tensor
"""Themselves: a program may put functions of its own in their places."""


def _by_slot(vm: Interpreter, value: Value, function: object, slot: str) -> Value:
    asked = value.symbolic or (isinstance(value, ObjectValue) and hasattr(value.cls, slot))
    result = value.special(vm, slot, []) if asked else None
    return fold(vm, function, [value], {}) if result is None else result


for _name in ("floor", "ceil", "trunc"):
    handles(getattr(math, _name))(functools.partial(_by_slot, function=getattr(math, _name), slot=f"__{_name}__"))


@handles(math.sqrt)
def square_root(vm: Interpreter, value: Value) -> Value:
    """``math.sqrt()``, also of numbers that depend on sizes."""
    if isinstance(value, SymbolicNumber) and vm.truth(vm.compare(">=", value, vm.fresh(0))):
        return vm.fresh(torch._sym_sqrt(value.number))  # type: ignore[attr-defined]
    return function_of_float(vm, value, function=math.sqrt)


@handles(math.prod)
def product(vm: Interpreter, items: Value, *, start: Value = ConstantValue(1)) -> Value:
    """``math.prod()``: by ``*``."""
    total = start
    for item in vm.unpack(items):
        total = vm.binary("*", total, item)
    return total


def _tensor_of(vm: Interpreter, data: Value, function: object, **kwargs: Value) -> Value:
    """These functions want the number itself; ``torch.full`` makes the same tensor of any. Arrays of NumPy that captured code made are
    lists."""
    if (array := array_of(data)) is not None and array.size <= LARGEST:
        kwargs.setdefault("dtype", ConstantValue(torch.from_numpy(array[:0] if array.ndim else array).dtype))
        data, function = vm.fresh(array.tolist()), TENSOR
    elif is_none(kwargs.get("dtype", NOTHING)) and has_numpy(vm, data):
        with contextlib.suppress(NotConstant):
            kwargs["dtype"] = dtype_like(vm, like(vm, data))
    if is_on_processor(kwargs) and (made := put_together(vm, data, kwargs.get("dtype", NOTHING))) is not None:
        return made
    if type(data) is LateFloat and kwargs.keys() <= {"dtype"}:
        dtype = kwargs.get("dtype", NOTHING)
        wanted = dtype if not is_none(dtype) else ConstantValue(torch.get_default_dtype())
        return data.tensor.method(vm, "to", [wanted], {}).method(vm, "clone", [], {})
    if isinstance(data, SequenceValue) and kwargs.keys() <= {"dtype", "device"}:
        items = data.values(vm)
        if any(map(is_size, items)) and all(is_size(v) or (type(v) is ConstantValue and type(v.value) is int) for v in items):
            return vm.recorder.call_function(vm, sized.tensor, [data], kwargs)
    if data.symbolic and kwargs.keys() <= {"dtype", "device"}:
        return torch_call(vm, FULL, [TupleValue([]), data], kwargs)
    return torch_call(vm, function, [data], kwargs)


def is_on_processor(said: Mapping[str, Value]) -> bool:
    """Whether a tensor is made there, and nothing is said of it but its type."""
    device = said.get("device", NOTHING)
    there = is_none(device) or (type(device) is ConstantValue and torch.device(device.value).type == "cpu")
    return said.keys() <= {"dtype", "device"} and there and torch.get_default_device().type == "cpu"


def dtype_like(vm: Interpreter, data: object) -> Value:
    """The dtype of a tensor that torch makes of such data; what it refuses (``[np.bool_(True), 1]``) raises."""
    try:
        return ConstantValue(torch.tensor(data).dtype)
    except (TypeError, ValueError, RuntimeError) as exc:
        vm.throw_real(exc)


def has_numpy(vm: Interpreter, data: Value) -> bool:
    """Whether there are numbers of NumPy's in data: their types decide the tensor's, where Python's are of the default ones."""
    if isinstance(data, SequenceValue):
        return any(has_numpy(vm, item) for item in data.values(vm))
    return data.python_type().__module__ == "numpy" and not isinstance(data, TensorValue)


def like(vm: Interpreter, data: Value) -> object:
    """Data of the same types. Raises NotConstant where there are other things than numbers."""
    if isinstance(data, SequenceValue):
        return [like(vm, item) for item in data.values(vm)]
    return data.as_told() if data.told_later else data.constant()


LARGEST = 4096
"""Elements of an array that a graph holds as numbers."""


def array_of(value: Value) -> Any:
    """The array of NumPy that captured code made of constants; None for other values."""
    plain: Any = value.obj if isinstance(value, BuiltinValue) else None
    if type(value.source) is not Pinned or value.source.label != repr(type(plain)):  # found somewhere: it may change
        return None
    return plain if type(plain).__module__ == "numpy" and type(plain).__name__ == "ndarray" and plain.dtype.kind in "biufc" else None


for _function in (torch.tensor, torch.as_tensor, torch.from_numpy):
    handles(_function)(functools.partial(_tensor_of, function=_function))


def is_size(value: Value) -> bool:
    """Whether a value is an integer computed from sizes."""
    return isinstance(value, SymbolicNumber) and value.python_type() is int


@handles(LINSPACE)
def linspace(vm: Interpreter, start: Value, end: Value, steps: Value, **kwargs: Value) -> Value:
    """``torch.linspace()``: with a number of steps that depends on sizes by an operator that takes such."""
    plain = (
        is_size(steps)
        and kwargs.keys() <= {"dtype", "device"}
        and all(type(v) is ConstantValue and type(v.value) in (int, float) for v in (start, end))
    )
    ends = [as_end(vm, end) for end in (start, end)]
    return torch_call(vm, sized.linspace if plain else LINSPACE, [*ends, steps], kwargs)


@handles(ONE_HOT)
def one_hot(vm: Interpreter, tensor: Value, num_classes: Value = ConstantValue(-1)) -> Value:
    """``one_hot()``: with a number of classes that depends on sizes by an operator that takes such."""
    plain = is_size(num_classes) and isinstance(tensor, TensorValue) and tensor.fake.dtype is torch.int64
    return torch_call(vm, sized.one_hot if plain else ONE_HOT, [tensor, num_classes], {})


NOTHING = ConstantValue(None)
EXPECTED = (
    "Expected cond to be True, but got False. "
    "(Could this error message be improved? If so, please report an enhancement request to PyTorch.)"
)


@named("torch._check_with")
def check(vm: Interpreter, error: Value, condition: Value, message: Value = ConstantValue(None)) -> Value:
    """A condition on sizes that only data tell is demanded: checked when the graph runs."""
    undecided = condition.number if isinstance(condition, UndecidedTruth) else None
    if undecided is None and vm.truth(condition):
        return NOTHING
    said = message if isinstance(message, ConstantValue) else vm.call(message, [], {})
    text = EXPECTED if not isinstance(said, ConstantValue) or said.value is None else str(said.value)
    if undecided is None:
        return vm.throw(error.constant(), text)
    vm.recorder.demand(vm, undecided.node.condition, text, error.constant().__name__)
    return NOTHING


@named("torch._check_is_size")
def check_is_size(vm: Interpreter, size: Value, message: Value = ConstantValue(None), *, max: Value = ConstantValue(None)) -> Value:
    """``torch._check_is_size()``: a check that a number is in the range of sizes."""
    error = vm.wrap(RuntimeError)
    check(vm, error, vm.compare(">=", size, ConstantValue(0)), message)
    if not isinstance(max, ConstantValue) or max.value is not None:
        check(vm, error, vm.compare("<=", size, max), message)
    return NOTHING
