"""Functions of torch that take a float which changes from call to call (the decay of an average, a rate): as methods and operators do,
they leave its value to the call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ...graph.open_floats import WIDE, changes
from ...graph.open_scalars import scalar
from ...graph.operands import is_plain, is_plain_on_cpu
from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.floating import as_float, is_known_number
from ...values.sequence import ListValue, SequenceValue, TupleValue
from ...values.tensor import COMPUTED_IN, TensorValue
from ..dispatch import torch_call
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

RSUB, SUB = torch.rsub, torch.sub
"""Themselves: a program may put functions of its own in their places."""
FACTORS: dict[Callable[..., object], str] = {
    **dict.fromkeys((torch.add, torch.sub), "alpha"),
    **dict.fromkeys((torch.addcmul, torch.addcdiv), "value"),
}
"""Function -> the keyword of its factor. The method of that name multiplies by one that is not assumed."""
EACH: dict[Callable[..., object], tuple[str, tuple[str, ...]]] = {
    getattr(torch, f"_foreach_{name}{suffix}"): (name + suffix, names)
    for name, names in (
        *((each, ()) for each in ("add", "sub", "mul", "div", "lerp", "clamp_min", "clamp_max", "pow")),
        *((each, ("", "", "value")) for each in ("addcmul", "addcdiv")),
    )
    for suffix in ("", "_")
} | {getattr(torch, f"_foreach_{name}"): (name, ()) for name in ("maximum", "minimum")}
"""Function of lists -> the method that computes the same of each tensor, which is what the function calls on processors, and by which
names the method takes what comes behind the tensor."""
TYPES = (*WIDE, *COMPUTED_IN)
NAMES = ("scalar", "scalars")
"""How functions of lists call numbers."""


def with_factor(vm: Interpreter, *args: Value, function: Callable[..., object], **kwargs: Value) -> Value:
    """The method instead, for a factor that is not assumed."""
    if args and type(args[0]) is TensorValue and FACTORS[function] in kwargs and changes(as_float(vm, kwargs[FACTORS[function]])):
        return vm.call(vm.getattr(args[0], function.__name__), list(args[1:]), kwargs)
    return torch_call(vm, function, list(args), kwargs)


@handles(RSUB)
def subtracted(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """``torch.rsub(x, y, alpha=...)``: y - alpha * x."""
    if len(args) == 2 and all(type(each) is TensorValue and each.fake.dtype in WIDE for each in args):
        return with_factor(vm, *reversed(args), function=SUB, **kwargs)
    return torch_call(vm, RSUB, list(args), kwargs)


def is_counted_on(vm: Interpreter, tensor: TensorValue) -> bool:
    """Whether methods of this tensor take floats that are not assumed and compute what the functions of lists compute."""
    if is_plain_on_cpu(tensor):
        return tensor.fake.dtype in TYPES
    return is_plain(tensor) and vm.recorder.counts and tensor.fake.dtype in WIDE


def columns(vm: Interpreter, args: tuple[Value, ...]) -> list[list[Value]] | None:
    """The arguments for each tensor: items of the lists of tensors of floats and of numbers, which are as many, and numbers as they
    are; None for others."""
    lists = [vm.unpack(a) if isinstance(a, SequenceValue) else None for a in args]
    counts = {len(items) for items in lists if items is not None}
    if len(counts) != 1 or counts == {0}:
        return None
    for items in lists:
        tensors = [type(t) is TensorValue and is_counted_on(vm, t) for t in items or ()]
        if not all(tensors) and not all(is_known_number(each) or changes(each) for each in items or ()):
            return None
    return [[a if items is None else items[k] for a, items in zip(args, lists, strict=True)] for k in range(counts.pop())]


def with_floats(vm: Interpreter, given: Value) -> Value:
    """A number, or a list of numbers, with floats for those that are computed from ints."""
    if not isinstance(given, (ListValue, TupleValue)):
        return as_float(vm, given)
    items = vm.unpack(given)
    return ListValue([as_float(vm, each) for each in items]) if any(each.symbolic for each in items) else given


def is_open(vm: Interpreter, given: Value) -> bool:
    """Whether it is a float that is not assumed, or a list with one."""
    return any(map(changes, vm.unpack(given) if isinstance(given, SequenceValue) else [given]))


def of_each(vm: Interpreter, function: Callable[..., object], given: list[Value], named: dict[str, Value]) -> Value:
    """What the method gives for one tensor; of a number to the power of a tensor the operator."""
    method, names = EACH[function]
    if not isinstance(given[0], TensorValue):
        return vm.binary("**", given[0], given[1])
    if method in ("maximum", "minimum") and len(given) == 2 and not isinstance(given[1], TensorValue):
        given = [given[0], *filter(None, [scalar(vm.recorder, given[1], given[0])])]
    behind = given[1:] + [value for name, value in named.items() if name in NAMES]
    if (
        method == "mul_"
        and MULTIPLIES_BY_ROUNDED
        and type(given[0]) is TensorValue
        and given[0].fake.dtype in COMPUTED_IN
        and changes(behind[0])
    ):
        behind = [vm.recorder.scalars.double_of(behind[0], given[0].fake).of_dtype(vm, given[0].fake.dtype)]
    by_name = {name: value for name, value in zip(names, behind, strict=False) if name}
    rest = {name: value for name, value in named.items() if name not in NAMES}
    return vm.call(vm.getattr(given[0], method), behind[: len(behind) - len(by_name)], by_name | rest)


def for_each(vm: Interpreter, *args: Value, function: Callable[..., object], **kwargs: Value) -> Value:
    """The method of each tensor, for numbers that are not assumed."""
    plain, named = tuple(with_floats(vm, each) for each in args), {name: with_floats(vm, each) for name, each in kwargs.items()}
    method, _ = EACH[function]
    open_ = any(is_open(vm, each) for each in (*plain, *named.values()))
    calls = columns(vm, (*plain, *named.values())) if open_ else None
    writes = method.endswith("_")
    if calls is None:
        return written_list(vm, *args, function=function, **kwargs) if writes else torch_call(vm, function, list(args), kwargs)
    made = [of_each(vm, function, call[: len(plain)], dict(zip(named, call[len(plain) :], strict=True))) for call in calls]
    if writes:
        return args[0] if GIVES_LIST_WRITTEN else ConstantValue(None)
    return TupleValue(made) if GIVES_TUPLE else ListValue(made)


def written_list(vm: Interpreter, *args: Value, function: Callable[..., object], **kwargs: Value) -> Value:
    """A function that writes to the tensors of a list gives that very list."""
    given = torch_call(vm, function, list(args), kwargs)
    return (args[0] if args else kwargs.get("self", given)) if GIVES_LIST_WRITTEN else given


SOME = [torch.zeros(())]
TIMES: Callable[[list[torch.Tensor], float], object] = torch._foreach_mul_
TIMES(NINE := [torch.tensor([9.0], dtype=torch.bfloat16)], 0.1)
MULTIPLIES_BY_ROUNDED = NINE[0].item() != (torch.tensor([9.0], dtype=torch.bfloat16) * 0.1).item()
"""Whether a function that multiplies the tensors of a list rounds the number to their type first: versions of torch may differ."""
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
