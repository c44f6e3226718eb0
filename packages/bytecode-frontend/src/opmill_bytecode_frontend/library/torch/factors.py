"""Functions of torch that take a float which changes from call to call (the decay of an average, a rate): as methods and operators do,
they leave its value to the call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ...graph.open_floats import changes
from ...graph.operands import is_plain_on_cpu
from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.floating import as_float
from ...values.sequence import ListValue, SequenceValue, TupleValue
from ...values.tensor import TensorValue
from ..dispatch import torch_call
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

FACTORS: dict[Callable[..., object], str] = {torch.add: "alpha", torch.sub: "alpha", torch.addcmul: "value", torch.addcdiv: "value"}
"""Function -> the keyword of its factor. The method of that name multiplies by one that is not assumed."""
EACH: dict[Callable[..., object], str] = {
    getattr(torch, f"_foreach_{name}{suffix}"): name + suffix
    for name in ("add", "sub", "mul", "div", "lerp", "clamp_min", "clamp_max", "pow")
    for suffix in ("", "_")
}
"""Function of lists -> the method that computes the same of each tensor, which is what the function calls on processors."""


def with_factor(vm: Interpreter, *args: Value, function: Callable[..., object], **kwargs: Value) -> Value:
    """The method instead, for a factor that is not assumed."""
    if args and type(args[0]) is TensorValue and FACTORS[function] in kwargs and changes(as_float(vm, kwargs[FACTORS[function]])):
        return vm.call(vm.getattr(args[0], function.__name__), list(args[1:]), kwargs)
    return torch_call(vm, function, list(args), kwargs)


def columns(vm: Interpreter, args: tuple[Value, ...]) -> list[list[Value]] | None:
    """The arguments for each tensor of the first list: items of lists of that length, and numbers as they are; None for others."""
    lists = [vm.unpack(a) if isinstance(a, SequenceValue) else None for a in args]
    first = lists[0] if lists else None
    if not first or any(items is not None and len(items) != len(first) for items in lists):
        return None
    tensors = [t for items in lists for t in items or ()]
    if not all(type(t) is TensorValue and is_plain_on_cpu(t) and t.fake.is_floating_point() for t in tensors):
        return None
    return [[a if items is None else items[k] for a, items in zip(args, lists, strict=True)] for k in range(len(first))]


def for_each(vm: Interpreter, *args: Value, function: Callable[..., object], **kwargs: Value) -> Value:
    """The method of each tensor, for a number that is not assumed."""
    args, kwargs = tuple(as_float(vm, each) for each in args), {name: as_float(vm, each) for name, each in kwargs.items()}
    calls = columns(vm, args) if any(map(changes, (*args, *kwargs.values()))) else None
    writes = EACH[function].endswith("_")
    if calls is None:
        return written_list(vm, *args, function=function, **kwargs) if writes else torch_call(vm, function, list(args), kwargs)
    made = [vm.call(vm.getattr(call[0], EACH[function]), call[1:], dict(kwargs)) for call in calls]
    if writes:
        return args[0] if GIVES_LIST_WRITTEN else ConstantValue(None)
    return TupleValue(made) if GIVES_TUPLE else ListValue(made)


def written_list(vm: Interpreter, *args: Value, function: Callable[..., object], **kwargs: Value) -> Value:
    """A function that writes to the tensors of a list gives that very list."""
    given = torch_call(vm, function, list(args), kwargs)
    return (args[0] if args else kwargs.get("self", given)) if GIVES_LIST_WRITTEN else given


SOME = [torch.zeros(())]
GIVES_TUPLE = type(torch._foreach_neg(SOME)) is tuple
WRITING: Callable[[list[torch.Tensor]], object] = torch._foreach_neg_
GIVES_LIST_WRITTEN = WRITING(SOME) is SOME
"""Whether functions of lists give tuples, and whether those that write to a list give that list: versions of torch differ."""

for _function in FACTORS:
    handles(_function)(functools.partial(with_factor, function=_function))
for _function in EACH:
    handles(_function)(functools.partial(for_each, function=_function))
for _name in [each for each in dir(torch) if each.startswith("_foreach_") and each.endswith("_")]:
    if (_function := getattr(torch, _name)) not in EACH:
        handles(_function)(functools.partial(written_list, function=_function))

__all__ = ["for_each", "with_factor"]
