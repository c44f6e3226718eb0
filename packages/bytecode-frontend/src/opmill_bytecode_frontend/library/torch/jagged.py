"""How jagged tensors are made of packed or padded ones: by operators of torch that take another jagged tensor along, so that they come to
its class. That one belongs to torch, and is no input of a graph: the functions are recorded that pass it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nested._internal import nested_tensor

from ...values.base import Value
from ...values.constant import ConstantValue
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


def _recorded(function: object) -> None:
    @handles(function)
    def made(vm: Interpreter, *args: Value, **kwargs: Value) -> Value:
        nested_tensor._nt_view_dummy()  # made once for the process, of tensors with memory
        named = {name: value for name, value in kwargs.items() if not (isinstance(value, ConstantValue) and value.value is None)}
        return vm.recorder.call_function(vm, function, list(args), named)


_recorded(nested_tensor.nested_view_from_values_offsets)
_recorded(nested_tensor.nested_view_from_values_offsets_lengths)
_recorded(nested_tensor.nested_from_padded)
