"""Which steps of a schedule must come before which, where exchanges run beside the steps that follow them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..overloads import exchanges
from ..schedule.effects import gives_views, in_order, may_raise
from ..schedule.steps import ExternStep, Schedule, Step

WAIT = "_c10d_functional::wait_tensor"


@dataclass
class Dependences:
    """``before``: for each step the steps that it needs. ``waits``: for each exchange that runs beside others the steps that wait for it
    (one for each of its results), in order of the schedule. ``fixed``: steps that keep their order among one another, exchanges and waits
    left out: what they do shows elsewhere. ``roots``: for buffers that lie in the memory of others, the first of these."""

    before: list[set[int]]
    waits: dict[int, list[int]]
    fixed: set[int]
    roots: Mapping[str, str]


def is_wait(step: Step) -> bool:
    """Whether the step waits for an exchange."""
    return type(step) is ExternStep and step.node.op == WAIT


def is_exchange(step: Step) -> bool:
    """Whether other processes take part, or may in a graph inside; a wait is none of its own."""
    return type(step) is ExternStep and step.node.op != WAIT and (exchanges(step.node.op) or bool(step.node.bodies))


def dependences(schedule: Schedule) -> Dependences:
    """What writes to the memory that an exchange reads comes after the wait for it, and what is in the memory of another buffer counts as
    that buffer."""
    steps = schedule.steps
    roots = _roots(steps)
    waits = _waits(steps)
    ends = {start: found for start, found in waits.items() if found}
    before: list[set[int]] = [set() for _ in steps]
    writers: dict[str, int] = {}
    readers: dict[str, set[int]] = defaultdict(set)
    fixed: list[int] = []
    for k, step in enumerate(steps):
        reads, writes = ({roots.get(b, b) for b in names} for names in (step.reads(), step.writes()))
        needs = {writers[b] for b in reads | writes if b in writers}
        for b in writes:
            for reader in readers[b]:
                needs.update(ends.get(reader, (reader,)))
        before[k] = {n for n in needs if n < k}
        if _is_fixed(step, schedule):
            before[k].update(fixed[-1:])
            fixed.append(k)
        for b in reads - writes:
            readers[b].add(k)
        for b in writes:
            writers[b], readers[b] = k, set()
    return Dependences(before, waits, set(fixed), roots)


def _roots(steps: Sequence[Step]) -> Mapping[str, str]:
    roots: dict[str, str] = {}
    for step in steps:
        if type(step) is ExternStep and (is_wait(step) or gives_views(step.node)):
            for source in sorted(step.reads() - step.writes())[:1]:
                roots |= {b: roots.get(source, source) for b in step.writes()}
    return roots


def _waits(steps: Sequence[Step]) -> dict[int, list[int]]:
    makers: dict[str, int] = {}
    found: dict[int, list[int]] = {}
    for k, step in enumerate(steps):
        if is_exchange(step):
            found[k] = []
            makers |= dict.fromkeys(step.writes(), k)
        elif is_wait(step):
            for b in step.reads():
                if b in makers:
                    found[makers[b]].append(k)
    return found


def _is_fixed(step: Step, schedule: Schedule) -> bool:
    """Whether the step shows outside of its results: it draws, raises, or writes what is not the schedule's own."""
    if is_wait(step) or is_exchange(step):
        return False
    if type(step) is ExternStep:
        shows = in_order(step.node) or may_raise(step.node) or bool(step.node.binds or step.node.mutates)
    else:
        shows = any(p.checks for n in step.kernel.nests for p in n.phases)
    return shows or any(schedule.buffers[b].role != "temporary" for b in step.writes())


__all__ = ["WAIT", "Dependences", "dependences", "is_exchange", "is_wait"]
