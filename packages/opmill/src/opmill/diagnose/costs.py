"""What a step of a plan moves and computes: bytes and floating-point operations, from the tensors that it is given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from opmill_graph_ir.loops.ir import Load, LoopKernel, Op
from opmill_graph_ir.loops.walk import expressions, inside
from opmill_runtime_cache.devices.registry import traits_of
from opmill_runtime_cache.plan.expr import evaluate
from opmill_runtime_cache.plan.model import Call, Expr, Launch, ListArg, Slot
from opmill_runtime_cache.plan.verify import args_of, slots_in

from .limits import TF32


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


def flops_of(step: Launch | Call, slots: Mapping[int, torch.Tensor], sizes: Mapping[str, int], kernel: LoopKernel | None = None) -> int:
    """Floating-point operations of a product, convolution or attention, as torch's own counter has them; 0 for other operators. Of a
    kernel, whose loops are ``kernel``, those of sums of products of two tensors."""
    if isinstance(step, Launch):
        return 0 if kernel is None else _of_loops(kernel, [evaluate(size, sizes) for size in step.sizes])
    from torch.utils.flop_counter import flop_registry  # only a profile needs it

    name = step.op.removeprefix("aten::").partition(".")[0]
    args = [_value(arg, slots, sizes) for arg in step.args]
    if (matrix := _MATRIX.get(name)) is not None:
        return 2 * int(args[matrix].numel())
    count = flop_registry.get(getattr(torch.ops.aten, name.replace("_for_cpu", ""), None))
    if count is None:
        return 0
    out = step.kwargs.get("out")
    results = [out.index] if isinstance(out, Slot) else step.results
    made = [None if slot is None else slots.get(slot) for slot in results]
    try:
        return int(count(*args, out_val=made if len(made) > 1 else made[0]))
    except Exception:  # a counter for other arguments than these: the operator counts as none
        return 0


def multiplies_in(step: Launch | Call, slots: Mapping[int, torch.Tensor]) -> str:
    """The element type of what a step multiplies, as ``limits.flops_of`` takes it: the narrowest that it is given."""
    given = step.slots if isinstance(step, Launch) else tuple(slot for arg in step.args for slot in slots_in(arg))
    types = {slots[slot].dtype: slots[slot].device.type for slot in given if slot in slots and slots[slot].dtype.is_floating_point}
    narrow = min(types, key=lambda dtype: dtype.itemsize, default=torch.float32)
    if narrow is torch.float32 and narrow in types and traits_of(types[narrow]).matrix_units and torch.backends.cuda.matmul.allow_tf32:
        return TF32
    return str(narrow).removeprefix("torch.")


_MATRIX = {"mv": 0, "addmv": 1, "dot": 0, "vdot": 0}
"""Products with a vector, of which torch counts nothing: which argument has an element for each multiplication."""


def _of_loops(kernel: LoopKernel, sizes: Sequence[int]) -> int:
    if (attention := kernel.attention) is not None:
        pairs = attention.batch * attention.heads * attention.queries * attention.keys
        times = _PRODUCTS[attention.part]
        return 0 if attention.query_block else 2 * pairs * (times[0] * attention.width + times[1] * attention.depth)
    values = dict(zip(kernel.symbols, sizes, strict=True))
    found = 0
    for nest in kernel.nests:
        outer = math.prod(axis.extent.evaluate(values) for axis in nest.axes)
        for phase in nest.phases:
            points = outer * math.prod(axis.extent.evaluate(values) for axis in phase.axes)
            found += 2 * points * sum(each.op == "sum" and _multiplies(each.value) for each in phase.reductions)
    return found


_PRODUCTS = {"forward": (1, 1), "keys": (2, 2), "queries": (2, 1)}
"""Of each part of attention, how often rows are multiplied as wide as queries and keys are, and as deep as values."""


def _multiplies(value: Any) -> bool:
    """Whether it is a product of what two tensors have."""
    while isinstance(value, Op) and value.name == "cast":
        value = value.args[0]
    if not isinstance(value, Op) or value.name != "mul":
        return False
    left, right = ({each.buffer for each in inside(side) if isinstance(each, Load)} for side in value.args)
    return bool(left and right) and not left & right


def _value(arg: Any, slots: Mapping[int, torch.Tensor], sizes: Mapping[str, int]) -> Any:
    if isinstance(arg, Slot):
        return slots[arg.index]
    if isinstance(arg, ListArg):
        return [_value(each, slots, sizes) for each in arg.items]
    return evaluate(arg.value, sizes) if isinstance(arg, Expr) else getattr(arg, "value", None)
