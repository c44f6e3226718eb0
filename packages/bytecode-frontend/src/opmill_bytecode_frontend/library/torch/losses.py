"""The loss of connectionist temporal classification, whose lengths may be lists of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from opmill_guards.source import Pinned

from ...graph.operands import is_plain_on_cpu
from ...values.base import Value
from ...values.constant import ConstantValue
from ...values.number import SymbolicNumber
from ...values.sequence import SequenceValue
from ...values.tensor import TensorValue
from ..dispatch import torch_call
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

CTC_LOSS, OF_LISTS, MAKE = torch.ctc_loss, F.ctc_loss, torch.tensor
NAMES = ("log_probs", "targets", "input_lengths", "target_lengths")


def as_tensors(vm: Interpreter, args: tuple[Value, ...], kwargs: dict[str, Value]) -> tuple[list[Value], dict[str, Value]]:
    """The arguments with tensors for lists of lengths, of which torch on a processor makes lists again: what there is for lists reads the
    labels, which a graph does not have while it is made."""
    given = dict(zip(NAMES, args)) | {name: value for name, value in kwargs.items() if name in NAMES}
    probabilities = given.get("log_probs")
    if type(probabilities) is not TensorValue or not is_plain_on_cpu(probabilities):
        return list(args), kwargs
    lengths = {name: made for name in NAMES[2:] if (made := tensor_of(vm, given.get(name))) is not None}
    if len(lengths) < 2:
        return list(args), kwargs
    return [lengths.get(name, value) for name, value in zip(NAMES, args)] + list(args[4:]), {
        name: lengths.get(name, value) for name, value in kwargs.items()
    }


def tensor_of(vm: Interpreter, lengths: Value | None) -> Value | None:
    """A tensor of the ints in a list or a tuple; None for all else."""
    if not isinstance(lengths, SequenceValue) or lengths.cls not in (list, tuple):
        return None
    if not all(type(each) in (ConstantValue, SymbolicNumber) and each.python_type() is int for each in lengths.values(vm)):
        return None
    return vm.call(vm.wrap(MAKE, Pinned(MAKE, "tensor")), [lengths], {"dtype": ConstantValue(torch.int64)})


def _loss(function: Callable[..., object]) -> None:
    @handles(function)
    def loss(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
        given, named = as_tensors(vm, args, kwargs)
        return torch_call(vm, function, given, named)


for _function in (CTC_LOSS, OF_LISTS):
    _loss(_function)

__all__ = ["as_tensors"]
