"""The order of a schedule in which exchanges with other processes start as early and are waited for as late as memory allows.

Exchanges start in the order of the program, but for what `deferred` says, and stay what they are, on every process the same, whatever
surrounds them: a process that compiled another graph, or none, still meets the others.

No cost decides here, so that nothing of a machine does. An exchange starts before the first step that it need not follow; what only
prepares it goes with it. Memory is that of the given order, with waits where results are first read, and a little more: what an early start
or a late wait holds in addition must fit below the highest point.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..lowered import TensorOutput
from ..schedule.memory import guessed_bytes
from ..schedule.steps import ExternStep, KernelStep, Schedule, Step
from .deferred import deferred
from .dependences import Dependences, dependences, is_exchange, is_wait

AHEAD = 64 << 20
"""Bytes by which memory in use may rise above the highest point of the given order, at least."""
_SHARE = 16
"""The same as a share of that point: one of so many."""
_PREPARATION = 32
"""Steps that one exchange may take along, at most: casts and copies of what it sends."""


def overlapped(schedule: Schedule) -> Schedule:
    """The same steps in an order in which exchanges run beside them."""
    if not any(map(is_exchange, schedule.steps)) or None in schedule.lowered.symbols.values():
        return schedule
    order = _begun(schedule)
    steps = [order.steps[k] for k in order.run()]
    return replace(schedule, steps=_told(steps, order.needs, order.out))


def _begun(schedule: Schedule) -> _Order:
    """The order to come, of a schedule in which steps that exchanges do not need are deferred, if memory allows that."""
    given, found = _Order(schedule), deferred(schedule)
    if found.order == list(range(len(schedule.steps))):
        return given
    places = {k: place for place, k in enumerate(found.order)}
    order = _Order(replace(schedule, steps=[schedule.steps[k] for k in found.order]), most=given.limit)
    for wait, starts in found.started.items():
        order.needs.before[places[wait]].update(places[k] for k in starts)
    return order if order.held.top <= given.limit else given


def _told(steps: list[Step], needs: Dependences, order: Sequence[int]) -> list[Step]:
    """The steps; of each exchange its origin says how many steps run beside it."""
    places = {k: place for place, k in enumerate(order)}
    for start, waits in needs.waits.items():
        step = steps[places[start]]
        if waits and isinstance(step, ExternStep):
            first = min(places[wait] for wait in waits)
            beside = sum(not is_wait(s) and not is_exchange(s) for s in steps[places[start] + 1 : first])
            origin = f"{step.node.origin}; beside {beside} step{'s' * (beside != 1)}".lstrip("; ")
            steps[places[start]] = ExternStep(replace(step.node, origin=origin))
    return steps


@dataclass(frozen=True)
class Held:
    """Bytes in use at each step of the given order, the most of them, and what each exchange reads that nothing reads after it: it is held
    until the exchange is waited for."""

    level: list[int]
    top: int
    sent: dict[int, int]


@dataclass
class _Order:
    schedule: Schedule
    out: list[int] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    early: dict[int, int] = field(default_factory=dict)
    """Steps that ran before their place, with the bytes that they hold until that is reached."""
    late: dict[int, int] = field(default_factory=dict)
    """Exchanges that are waited for later than in the given order, with the bytes that they hold until then."""
    most: int | None = None
    """The bytes that may be in use, where the order given does not tell."""

    def __post_init__(self) -> None:
        self.steps: Sequence[Step] = self.schedule.steps
        self.needs: Dependences = dependences(self.schedule)
        self.held = held(self.schedule, self.needs)
        self.limit = self.held.top + max(AHEAD, self.held.top // _SHARE) if self.most is None else self.most
        self.starts = [k for k, step in enumerate(self.steps) if is_exchange(step)]
        self.blocked = -1
        """A step that must run before the next exchange can start."""

    def run(self) -> list[int]:
        for k, step in enumerate(self.steps):
            self._pass(k)
            if k in self.done or is_wait(step):
                continue
            self._start_ready(k)
            if k not in self.done:
                self._emit(k)
        for k in range(len(self.steps)):  # what nothing here reads is waited for at the end
            self._emit(k)
        return self.out

    def _emit(self, k: int) -> None:
        """Runs the step, and before it what it needs."""
        stack = [k]
        while stack:
            top = stack[-1]
            missing = [n for n in self.needs.before[top] if n not in self.done]
            if missing:
                stack += sorted(missing, reverse=True)
                continue
            stack.pop()
            if top not in self.done:
                self.done.add(top)
                self.out.append(top)

    def _pass(self, k: int) -> None:
        """What ran before its place holds no more than the given order from here on; an exchange that has its place here holds what it
        reads until it is waited for. Where that is too much, the oldest is waited for."""
        self.early.pop(k, None)
        self.late = {s: size for s, size in self.late.items() if not self.done.issuperset(self.needs.waits[s])}
        while self.late and self.held.level[k] + sum(self.early.values()) + sum(self.late.values()) > self.limit:
            oldest = next(iter(self.late))
            del self.late[oldest]
            for wait in self.needs.waits[oldest]:
                self._emit(wait)
        if self.held.sent.get(k):
            self.late[k] = self.held.sent[k]

    def _start_ready(self, at: int) -> None:
        """Starts the next exchanges for as long as they may."""
        while self.starts:
            start = self.starts[0]
            if start not in self.done:
                path = self._way(start)
                if path is None or not self._fits(start, path, at):
                    return
                self.early |= {n: self._bytes(n) for n in path if n > at}
                self._emit(start)
            del self.starts[0]

    def _way(self, start: int) -> list[int] | None:
        """The exchange with the steps that must run before it and only prepare it; None where one of them does more than that."""
        if self.blocked >= 0 and self.blocked not in self.done:
            return None
        found: list[int] = []
        stack = [start]
        while stack:
            k = stack.pop()
            found.append(k)
            for n in self.needs.before[k]:
                if n in self.done or n in found:
                    continue
                if not self._prepares(n) or len(found) > _PREPARATION:
                    self.blocked = n
                    return None
                stack.append(n)
        return found

    def _prepares(self, k: int) -> bool:
        """Whether the step is a kernel that nothing shows of but what it writes."""
        return isinstance(self.steps[k], KernelStep) and k not in self.needs.fixed

    def _fits(self, start: int, path: Sequence[int], at: int) -> bool:
        if start <= at:
            return True
        more = sum(self._bytes(n) for n in path if n > at) + sum(self.early.values()) + sum(self.late.values())
        return max(self.held.level[at:start]) + more <= self.limit

    def _bytes(self, k: int) -> int:
        return sum(guessed_bytes(self.schedule, b) for b in self.steps[k].writes() if self.schedule.buffers[b].role == "temporary")


def held(schedule: Schedule, needs: Dependences, *, waited: bool = False) -> Held:
    """Memory in use in the order of the schedule, were each exchange waited for where it starts; with ``waited``, where it is."""
    steps, roots = schedule.steps, needs.roots
    kept = {roots.get(o.buffer, o.buffer) for o in schedule.lowered.outputs if isinstance(o, TensorOutput)}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for k, step in enumerate(steps):
        for b in {roots.get(b, b) for b in step.reads() | step.writes()}:
            if schedule.buffers[b].role == "temporary":
                first.setdefault(b, k)
                last[b] = k
    for start, waits in needs.waits.items() if waited else ():
        for b in {roots.get(b, b) for b in steps[start].reads()}.intersection(last):
            last[b] = max(last[b], *waits) if waits else last[b]
    change = [0] * (len(steps) + 1)
    for b, start in first.items():
        size = guessed_bytes(schedule, b)
        change[start] += size
        change[len(steps) if b in kept else last[b] + 1] -= size
    level = list(itertools.accumulate(change[:-1]))
    sent = {}
    for start in (start for start, waits in needs.waits.items() if waits):
        read = {roots.get(b, b) for b in steps[start].reads()} - kept
        sent[start] = sum(guessed_bytes(schedule, b) for b in read if last.get(b, len(steps)) <= start)
    return Held(level, max(level, default=0), sent)


__all__ = ["AHEAD", "Held", "held", "overlapped"]
