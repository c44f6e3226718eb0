"""Floats that are computed of numbers which only data tell (``n / 2``, ``float(n)``, where ``n`` is an item, or a size of what was
selected): the graph computes them, in doubles, where an operator takes one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from opmill_fake_tensors.symbols import Index
from opmill_fake_tensors.symbols.node import sym_int
from opmill_fake_tensors.symbols.real import Real

from ..values.base import Value
from ..values.constant import ConstantValue
from ..values.data_dependent import EXACT, LateFloat

if TYPE_CHECKING:
    from .recorder import Recorder

BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "truediv": torch.div}
UNARY = {"neg": torch.neg, "abs": torch.abs, "sqrt": torch.sqrt}
"""What Python and torch compute of doubles to the last bit. That no divisor is zero was demanded when the program divided."""


def double_of_data(recorder: Recorder, number: torch.SymFloat, device: torch.device) -> LateFloat | None:
    """The number as one that the graph computes there; None where it is known before the graph, and where Python may round otherwise."""
    value = number.node.value
    if not isinstance(value, Real) or number.node.has_hint():
        return None
    tensor = _tensor(recorder, value, {"dtype": ConstantValue(torch.float64), "device": ConstantValue(device)})
    return None if tensor is None else LateFloat(recorder.vm, tensor, of=number)


def _tensor(recorder: Recorder, value: object, double: dict[str, Value]) -> Value | None:
    """Integers are doubles where they are below 2 ** 53, as sizes and counts are."""
    call = recorder.call_function
    if isinstance(value, Index):
        return call(recorder.vm, torch.scalar_tensor, [recorder.vm.fresh(sym_int(recorder.numbers.sizes, value))], double)
    if not isinstance(value, Real):
        plain = isinstance(value, (int, float)) and (type(value) is float or abs(value) < EXACT)
        return call(recorder.vm, torch.scalar_tensor, [ConstantValue(value)], double) if plain else None
    if value.op == "pow" and value.args[1] == 0.5:
        value = Real("sqrt", value.args[:1])
    function = BINARY.get(value.op) or UNARY.get(value.op)
    if function is None and value.op != "float":
        return None
    parts = [found for each in value.args if (found := _tensor(recorder, each, double)) is not None]
    if len(parts) < len(value.args):
        return None
    return parts[0] if function is None else call(recorder.vm, function, parts, {})


__all__ = ["double_of_data"]
