"""What a step of a plan moves and computes: bytes and floating-point operations, from the tensors that it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from opmill_runtime_cache.plan.expr import evaluate
from opmill_runtime_cache.plan.model import Call, Expr, Launch, ListArg, Slot
from opmill_runtime_cache.plan.verify import args_of, slots_in


def bytes_of(step: Launch | Call, slots: Mapping[int, torch.Tensor]) -> int:
    """Bytes of the memory that a step reads or writes, each tensor once; what is broadcast counts as it lies in memory."""
    touched = set(step.slots) if isinstance(step, Launch) else {slot for arg in args_of(step) for slot in slots_in(arg)}
    if isinstance(step, Call):
        touched |= {slot for slot in step.results if slot is not None}
    return sum(_extent(slots[slot]) for slot in touched if slot in slots)


def _extent(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided:
        return 0
    held = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        held *= size if stride else min(size, 1)
    return held * tensor.element_size()


def flops_of(step: Call, slots: Mapping[int, torch.Tensor], sizes: Mapping[str, int]) -> int:
    """Floating-point operations of a product, convolution or attention, as torch's own counter has them; 0 for other operators."""
    from torch.utils.flop_counter import flop_registry  # only a profile needs it

    count = flop_registry.get(getattr(torch.ops.aten, step.op.removeprefix("aten::").partition(".")[0], None))
    if count is None:
        return 0
    out = step.kwargs.get("out")
    written = [*([out.index] if isinstance(out, Slot) else []), *(slot for slot in step.results if slot is not None)]
    result = slots[written[0]] if written and written[0] in slots else None
    try:
        return int(count(*(_value(arg, slots, sizes) for arg in step.args), out_val=result))
    except Exception:  # a counter for other arguments than these: the operator counts as none
        return 0


def _value(arg: Any, slots: Mapping[int, torch.Tensor], sizes: Mapping[str, int]) -> Any:
    if isinstance(arg, Slot):
        return slots[arg.index]
    if isinstance(arg, ListArg):
        return [_value(each, slots, sizes) for each in arg.items]
    return evaluate(arg.value, sizes) if isinstance(arg, Expr) else getattr(arg, "value", None)
