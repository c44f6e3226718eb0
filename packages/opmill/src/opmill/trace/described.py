"""A plan as a picture needs it: what reads what, how many bytes each step moves, and who needs which memory how long."""

from __future__ import annotations

import math
from collections.abc import Iterable

from opmill_runtime_cache.plan.model import Alloc, Call, Constant, Launch, Plan, Slot, TensorInput, TensorSpec, View
from opmill_runtime_cache.plan.verify import READS

from ..origins import operators_in
from .events import Block, PlanStep

_BITS = {"bool": 8, "float8_e4m3fn": 8, "float8_e5m2": 8, "bfloat16": 16, "complex64": 64, "complex128": 128}


def _bytes_of(spec: TensorSpec) -> int:
    """Bytes of a tensor; -1 where its sizes vary."""
    if not all(isinstance(n, int) for n in spec.sizes):
        return -1
    bits = _BITS.get(spec.dtype) or int("".join(c for c in spec.dtype if c.isdigit()))
    return math.prod(n for n in spec.sizes if isinstance(n, int)) * bits // 8


def _sum(parts: Iterable[int]) -> int:
    found = list(parts)
    return -1 if -1 in found else sum(found)


def _written(step: Launch | Call) -> list[int]:
    if isinstance(step, Launch):
        return [step.slots[k] for k in step.writes]
    out = step.kwargs.get("out")
    return [*(r for r in step.results if r is not None), *([out.index] if isinstance(out, Slot) else [])]


def steps_of(plan: Plan) -> tuple[PlanStep, ...]:
    """Its kernels and operators, in order."""
    sizes = {item.slot: _bytes_of(item.spec) for item in (*plan.inputs, *plan.constants) if isinstance(item, (TensorInput, Constant))}
    root: dict[int, int] = {}
    makers: dict[int, int] = {}
    found: list[PlanStep] = []
    for position, step in enumerate(plan.steps):
        if isinstance(step, Alloc):
            sizes[step.slot] = _bytes_of(step.spec)
            root[step.slot] = step.slot
        elif isinstance(step, View):
            root[step.slot] = root.get(step.base, step.base)
            sizes[step.slot] = -1 if not all(isinstance(n, int) for n in step.sizes) else sizes.get(step.base, 0)
        elif isinstance(step, (Launch, Call)):
            if isinstance(step, Call):
                promised = zip(step.results, step.specs or [None] * len(step.results), strict=False)
                sizes |= {slot: _bytes_of(spec) for slot, spec in promised if slot is not None and spec is not None}
            read = [root.get(slot, slot) for slot in READS[type(step)](step)]
            written = _written(step)
            name = (operators_in([step.origin]) or "kernel") if isinstance(step, Launch) else step.op.removeprefix("aten::")
            moved = _sum(sizes.get(slot, 0) for slot in {*READS[type(step)](step), *written})
            reads = tuple(dict.fromkeys(makers.get(slot, -1) for slot in read))
            found.append(PlanStep(name, "kernel" if isinstance(step, Launch) else "torch", step.origin, reads, moved, position))
            makers |= {root.get(slot, slot): len(found) - 1 for slot in written}
    return tuple(found)


def blocks_of(plan: Plan) -> tuple[Block, ...]:
    """Its pieces of the arena; nothing where sizes vary."""
    root: dict[int, int] = {}
    begun: dict[int, tuple[Alloc, int]] = {}
    used: dict[int, int] = {}
    for position, step in enumerate(plan.steps):
        if isinstance(step, Alloc) and isinstance(step.offset, int):
            begun[step.slot] = (step, position)
        if isinstance(step, View):
            root[step.slot] = root.get(step.base, step.base)
        for slot in READS[type(step)](step):
            used[root.get(slot, slot)] = position
    return tuple(
        Block(int(alloc.offset or 0), size, position, used.get(slot, position) + 1, alloc.origin)
        for slot, (alloc, position) in begun.items()
        if (size := _bytes_of(alloc.spec)) > 0
    )


__all__ = ["blocks_of", "steps_of"]
