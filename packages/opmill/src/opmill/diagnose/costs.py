"""What a step of a plan moves and computes: bytes and floating-point operations, from the tensors that it is given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from opmill_graph_ir.loops.ir import Load, LoopKernel
from opmill_graph_ir.loops.walk import expressions
from opmill_runtime_cache.plan.expr import evaluate
from opmill_runtime_cache.plan.model import Call, Expr, Launch, ListArg, Slot
from opmill_runtime_cache.plan.verify import args_of, slots_in


def bytes_of(step: Launch | Call, slots: Mapping[int, torch.Tensor], sizes: Mapping[str, int], kernel: LoopKernel | None = None) -> int:
    """Bytes of the memory that a step reads or writes, each tensor once; what is broadcast counts as it lies in memory. ``kernel``: the
    loops of a launch, where they are known: of a table it reads no more than there are loads."""
    if isinstance(step, Call):
        touched = {slot for arg in args_of(step) for slot in slots_in(arg)} | {slot for slot in step.results if slot is not None}
        return sum(_extent(slots[slot]) for slot in touched if slot in slots)
    reads = _loads(kernel, [evaluate(size, sizes) for size in step.sizes]) if kernel is not None else {}
    names = [buffer.name for buffer in kernel.buffers] if kernel is not None else [""] * len(step.slots)
    writes = {step.slots[position] for position in step.writes}
    found: dict[int, int] = {}
    for slot, name in zip(step.slots, names, strict=True):
        if slot in slots:
            least = (
                _extent(slots[slot]) if slot in writes else min(_extent(slots[slot]), reads.get(name, _MANY) * slots[slot].element_size())
            )
            found[slot] = max(found.get(slot, 0), least)
    return sum(found.values())


_MANY = 1 << 62


def _loads(kernel: LoopKernel, sizes: Sequence[int]) -> dict[str, int]:
    """By buffer how often a kernel loads from it; nothing of one that does not say so by its nests."""
    values = dict(zip(kernel.symbols, sizes, strict=True))
    found: dict[str, int] = {}
    for nest in kernel.nests if kernel.attention is None else ():
        outer = math.prod(axis.extent.evaluate(values) for axis in nest.axes)
        for phase in nest.phases:
            points = outer * math.prod(axis.extent.evaluate(values) for axis in phase.axes)
            for each in expressions(phase):
                if isinstance(each, Load):
                    found[each.buffer] = found.get(each.buffer, 0) + points
    return found


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
