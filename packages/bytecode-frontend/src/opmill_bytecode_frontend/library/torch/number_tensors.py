"""Tensors of Python's numbers, some of which are not known while a graph is made: the graph puts them together.

``torch.tensor([reward, loss.item()])`` reads doubles and integers and converts them as ``Tensor.to`` does, where that never raises."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from ...graph.operands import is_plain_on_cpu
from ...values.base import Value
from ...values.constant import ConstantValue, is_none
from ...values.data_dependent import LateFloat, LateTruth
from ...values.floating import FloatNumber, as_float
from ...values.number import SymbolicNumber
from ...values.sequence import ListValue, SequenceValue, TupleValue
from ...values.tensor import TensorValue
from ..dispatch import torch_call
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

ARANGE, FULL, LOGSPACE, SCALAR_TENSOR = torch.arange, torch.full, torch.logspace, torch.scalar_tensor
BUCKETIZE, SEARCHSORTED, VECTOR_NORM, WHERE = torch.bucketize, torch.searchsorted, torch.linalg.vector_norm, torch.where
"""Themselves: a program may put functions of its own in their places."""
LARGEST = 256
"""Numbers that a graph puts together one by one."""
NOTHING = ConstantValue(None)
KINDS = (float, int, bool)
"""Python's numbers; what there is of the first decides the type of all."""
HELD_IN: dict[type, torch.dtype] = {float: torch.float64, int: torch.int64, bool: torch.bool}
MADE_OF: dict[type, tuple[torch.dtype, ...]] = {
    float: (torch.float32, torch.float64),
    int: (torch.int64, torch.float32, torch.float64),
    bool: (torch.bool, torch.int64, torch.float32, torch.float64),
}
"""Types that hold any number of a kind: others may overflow, which ``torch.tensor`` refuses."""


def is_open(value: Value) -> bool:
    """Whether a value is a number that is not known while the graph is made."""
    return isinstance(value, (LateFloat, LateTruth, FloatNumber, SymbolicNumber))


def kind_of(value: Value) -> type | None:
    """The kind of a number; None for all else."""
    kind = value.python_type() if is_open(value) else type(value.value) if type(value) is ConstantValue else None
    return kind if kind in KINDS else None


def shape_of(vm: Interpreter, data: Value) -> tuple[int, ...] | None:
    """The shape of numbers in lists and tuples; None where they have none."""
    if not isinstance(data, SequenceValue):
        return () if kind_of(data) is not None else None
    items = data.values(vm)
    shapes = {shape_of(vm, item) for item in items[:LARGEST]}
    inner = shapes.pop() if len(shapes) == 1 and len(items) <= LARGEST else None
    return None if inner is None else (len(items), *inner)


def leaves(vm: Interpreter, data: Value) -> Iterator[Value]:
    """The numbers, in order."""
    if not isinstance(data, SequenceValue):
        yield as_float(vm, data)
        return
    for item in data.values(vm):
        yield from leaves(vm, item)


def held(vm: Interpreter, number: Value, dtype: torch.dtype) -> Value:
    """A tensor without dimensions that holds a number."""
    if isinstance(number, (LateFloat, LateTruth)):
        found: Value = number.tensor
    elif isinstance(number, FloatNumber):
        found = vm.recorder.scalars.input_of(number)
    else:
        kind = kind_of(number)
        assert kind is not None, number
        found = torch_call(vm, FULL, [TupleValue([]), number], {"dtype": ConstantValue(HELD_IN[kind])})
    return found.method(vm, "to", [ConstantValue(dtype)], {})


def put_together(vm: Interpreter, data: Value, dtype: Value = NOTHING) -> Value | None:
    """The tensor that torch makes of numbers, where some of them are open; None where that is left to torch."""
    data = as_float(vm, data)
    if not isinstance(data, (SequenceValue, LateFloat, LateTruth, FloatNumber)) or (shape := shape_of(vm, data)) is None:
        return None
    numbers = list(leaves(vm, data)) if math.prod(shape) <= LARGEST else []
    if not any(map(is_open, numbers)) or any(type(number) is SymbolicNumber and number.python_type() is float for number in numbers):
        return None
    kinds = {kind_of(number) for number in numbers}
    kind = next(kind for kind in KINDS if kind in kinds)
    if is_none(dtype):
        wanted = torch.get_default_dtype() if kind is float else HELD_IN[kind]
    elif isinstance(dtype, ConstantValue) and isinstance(dtype.value, torch.dtype):
        wanted = dtype.value
    else:
        return None
    if wanted not in MADE_OF[kind]:
        return None
    parts: list[Value] = [held(vm, number, HELD_IN[kind]) for number in numbers]
    made = vm.recorder.call_function(vm, torch.stack, [ListValue(parts)], {}) if shape else parts[0]
    if len(shape) > 1:
        made = made.method(vm, "reshape", [TupleValue([ConstantValue(n) for n in shape])], {})
    made = made.method(vm, "to", [ConstantValue(wanted)], {})
    return made if shape else made.method(vm, "clone", [], {})  # the number may be read again


@handles(FULL)
def full(vm: Interpreter, size: Value, fill_value: Value, **kwargs: Value) -> Value:
    """``torch.full()``: of an open number by repeating it."""
    fill_value = as_float(vm, fill_value)
    open_ = isinstance(fill_value, (LateFloat, LateTruth, FloatNumber)) and kwargs.keys() <= {"dtype"}
    one = put_together(vm, fill_value, kwargs.get("dtype", NOTHING)) if open_ else None
    if one is None:
        return torch_call(vm, FULL, [size, fill_value], kwargs)
    if isinstance(fill_value, (LateFloat, FloatNumber)):
        assert isinstance(one, TensorValue), one
        fill_value.fills(one.fake.dtype)
    repeated = one.method(vm, "expand", [size], {})
    return repeated.method(vm, "clone", [], {"memory_format": ConstantValue(torch.contiguous_format)})


def as_end(vm: Interpreter, number: Value) -> Value:
    """An end of a range as ``torch.linspace`` takes it: a tensor, of which it takes the number, where that is not known."""
    return held(vm, number, torch.float64) if isinstance(number, (LateFloat, FloatNumber)) else number


@handles(LOGSPACE)
def logspace(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``torch.logspace()``"""
    return torch_call(vm, LOGSPACE, [*(as_end(vm, end) for end in args[:2]), *args[2:]], kwargs)


@handles(SCALAR_TENSOR)
def scalar_tensor(vm: Interpreter, number: Value, **kwargs: Value) -> Value:
    """``torch.scalar_tensor()``: of a float that is not known."""
    number = as_float(vm, number)
    plain = isinstance(number, (LateFloat, FloatNumber)) and kwargs.keys() <= {"dtype"}
    made = put_together(vm, number, kwargs.get("dtype", NOTHING)) if plain else None
    return torch_call(vm, SCALAR_TENSOR, [number], kwargs) if made is None else made


@handles(VECTOR_NORM)
def vector_norm(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``torch.linalg.vector_norm()``; that no type is asked for is left out."""
    said = {name: value for name, value in kwargs.items() if name != "dtype" or not is_none(value)}
    return torch_call(vm, VECTOR_NORM, list(args), said)


@handles(ARANGE)
def arange(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``torch.arange()``: from and to floats that are not known before the call, which then tells how many items there are."""
    ends = [as_float(vm, each) for each in args]
    found = between(vm, ends, kwargs) if any(isinstance(each, FloatNumber) for each in ends) and len(ends) <= 3 else None
    return torch_call(vm, ARANGE, ends, kwargs) if found is None else found


def between(vm: Interpreter, ends: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """start + i * step, as many as there are before the end; None where that is none, and left to torch."""
    dtype = kwargs.get("dtype", NOTHING)
    wanted = torch.get_default_dtype() if is_none(dtype) else dtype.value if isinstance(dtype, ConstantValue) else None
    start, end, step = ([ConstantValue(0), *ends] if len(ends) == 1 else ends) + [ConstantValue(1)] * (len(ends) < 3)
    if kwargs.keys() - {"dtype"} or wanted not in (torch.float32, torch.float64) or torch.get_default_device().type != "cpu":
        return None
    if not all(isinstance(each, (FloatNumber, ConstantValue)) and kind_of(each) in (int, float) for each in (start, end, step)):
        return None
    if not (step.decide("__gt__", 0.0) if isinstance(step, FloatNumber) else step.constant() > 0):
        return None
    length = vm.binary("/", vm.binary("-", end, start), step)
    if not isinstance(length, FloatNumber) or not (length.decide("__gt__", 0.0) and length.decide("__lt__", 1e9)):
        return None
    count = length.dunder(vm, "__ceil__", [])
    places = vm.recorder.call_function(vm, ARANGE, [count], {"dtype": ConstantValue(torch.float64)})
    made = vm.binary("+", vm.binary("*", places, step), start)
    return made.method(vm, "to", [ConstantValue(wanted)], {})


@handles(BUCKETIZE)
def bucket(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``torch.bucketize()``: of a float that is not known, which becomes one of the boundaries' type."""
    given = [beside(vm, *args), args[1]] if len(args) == 2 else list(args)
    return torch_call(vm, BUCKETIZE, given, kwargs)


@handles(SEARCHSORTED)
def place(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``torch.searchsorted()``: of such a float."""
    given = [args[0], beside(vm, *reversed(args))] if len(args) == 2 else list(args)
    return torch_call(vm, SEARCHSORTED, given, kwargs)


def beside(vm: Interpreter, number: Value, tensor: Value) -> Value:
    """What stands for a number beside a tensor of floats on a processor, to whose type it is rounded."""
    number = as_float(vm, number)
    if not isinstance(number, (LateFloat, FloatNumber)) or type(tensor) is not TensorValue or not is_plain_on_cpu(tensor):
        return number
    return held(vm, number, tensor.fake.dtype) if tensor.fake.dtype in MADE_OF[float] else number


@handles(WHERE)
def chosen(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``torch.where()``: of two numbers of which one is not known, by tensors of the type that they have together."""
    numbers = args[1:] if len(args) == 3 and not kwargs else ()
    floats = [each for each in numbers if isinstance(each, (LateFloat, FloatNumber))]
    if not floats or type(args[0]) is not TensorValue or not is_plain_on_cpu(args[0]) or any(kind_of(each) is None for each in numbers):
        return torch_call(vm, WHERE, list(args), kwargs)
    given: list[Value] = [held(vm, each, torch.get_default_dtype()) for each in numbers]
    return vm.recorder.call_function(vm, WHERE, [args[0], *given], {})


__all__ = ["FULL", "as_end", "chosen", "full", "put_together"]
