"""What kernels may read while the kernel before them still runs.

Devices with a grid start the programs of a kernel while those of the one before it end, and let them wait for its results there. Weights
are no results: a product that reads its matrix before it waits keeps the memory busy over the change from one kernel to the next, which is
a third of the time of a chain of products with one row.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

from opmill_runtime_cache.devices.registry import traits_of

from ..lowered import BufferInfo
from .steps import KernelStep, Schedule, Step

_LEAST = 1 << 16
"""Elements of an input that is worth it. Kernels that differ in marks are compiled apart."""


def read_early(schedule: Schedule) -> Schedule:
    """The schedule with marks (``Buffer.early``) on the inputs that kernels read while nobody writes them: the step before is a kernel on
    the same device that writes no input of the program, and so no memory that this one has in common with another. What ran before that
    step is done when it starts its successor."""
    steps = schedule.steps[:1]
    for before, step in itertools.pairwise(schedule.steps):
        if isinstance(step, KernelStep) and _lets_read(before, step, schedule.buffers):
            step = _marked(step, schedule.buffers)
        steps.append(step)
    return replace(schedule, steps=steps)


def _lets_read(before: Step, step: KernelStep, buffers: Mapping[str, BufferInfo]) -> bool:
    if not isinstance(before, KernelStep) or before.device != step.device:
        return False
    return traits_of(step.device).grid and all(buffers[name].role == "temporary" for name in before.writes())


def _marked(step: KernelStep, buffers: Mapping[str, BufferInfo]) -> KernelStep:
    marked = tuple(
        replace(b, early=b.role == "in" and buffers[name].role != "temporary" and (b.numel.constant or 0) >= _LEAST)
        for name, b in zip(step.arguments, step.kernel.buffers, strict=True)
    )
    return replace(step, kernel=replace(step.kernel, buffers=marked))


__all__ = ["read_early"]
