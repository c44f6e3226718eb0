"""The arena of plans that run one after the other, a forward and its backwards: it is there all the time, while what the forward saves and
the gradients come and go.

Where the most is saved, a large arena may lie idle. Large temporaries that are only used while little else is held are then allocated when
they are needed: they cost their pages at each call, so it is done where it lowers the peak by more than a little.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from opmill_runtime_cache.devices.registry import traits_of

from ..lowered import TensorOutput
from .effects import gives_views
from .memory import LARGE, Memory, guessed_bytes, plan_memory
from .steps import ExternStep, Schedule

_WORTH = 1.02
"""Peaks that differ by less are the same."""


@dataclass(frozen=True)
class _Held:
    """Bytes at each step of one plan: ``inside`` the arena in use, ``outside`` it held by what the plan allocates or was given to let
    go."""

    inside: list[int]
    outside: list[int]

    @property
    def least(self) -> int:
        """The peak, were the arena just what is used of it at each step."""
        return max(map(sum, zip(self.inside, self.outside, strict=True)), default=0)

    @property
    def top(self) -> int:
        return max(self.outside, default=0)


def plan_together(schedules: Sequence[Schedule], given: Sequence[Set[str]]) -> list[Memory]:
    """The memories of schedules that run in this order. ``given``: for each, the inputs that nobody else holds, which end with their last
    step."""
    memories = [plan_memory(s) for s in schedules]
    if not all(traits_of(m.device).host for m in memories):  # another device's allocator has the arena between calls
        return memories
    held = [_held(s, m, g) for s, m, g in zip(schedules, memories, given, strict=True)]
    least, top = max(h.least for h in held), max(h.top for h in held)
    if _peak(held, memories) <= max(_WORTH * least, least + LARGE):
        return memories
    smaller = [plan_memory(s, least - top) for s in schedules]
    found = [_held(s, m, g) for s, m, g in zip(schedules, smaller, given, strict=True)]
    return smaller if _WORTH * _peak(found, smaller) < _peak(held, memories) else memories


def _peak(held: Sequence[_Held], memories: Sequence[Memory]) -> int:
    return max(h.top for h in held) + max(m.guessed for m in memories)


def _held(schedule: Schedule, memory: Memory, given: Set[str]) -> _Held:
    count = len(schedule.steps)
    kept = {o.buffer for o in schedule.lowered.outputs if isinstance(o, TensorOutput)}
    views = {r for s in schedule.steps if isinstance(s, ExternStep) and gives_views(s.node) for r in s.node.results}
    held = _Held([0] * count, [0] * count)
    for buffer, first in memory.first.items():
        info = schedule.buffers[buffer]
        if buffer in views or buffer in memory.homes or (info.role != "temporary" and buffer not in given):
            continue
        start = first if info.role == "temporary" else 0
        end = count if buffer in kept else min(memory.last[buffer] + 1, count)
        column = held.inside if buffer in memory.offsets else held.outside
        size = guessed_bytes(schedule, buffer)
        for k in range(start, end):
            column[k] += size
    return held
