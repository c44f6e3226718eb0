"""How long a schedule is thought to take: one stream computes, others exchange with other processes, one for the links on a host and one
for those between hosts, each in the order of the steps."""

from __future__ import annotations

from dataclasses import dataclass

from ..schedule.steps import ExternStep, Schedule
from .costs import Machine, exchange_seconds, group_of, seconds
from .dependences import dependences, is_exchange, is_wait


@dataclass(frozen=True)
class Timeline:
    """Seconds: of all, of what is computed, of exchanges; ``exposed``: in which nothing is computed, as an exchange is waited for."""

    total: float
    computing: float
    exchanging: float

    @property
    def exposed(self) -> float:
        return self.total - self.computing


def simulate(schedule: Schedule, machine: Machine, *, blocking: bool = False) -> Timeline:
    """``blocking``: each exchange is waited for where it starts."""
    needs = dependences(schedule)
    waited = {wait: start for start, waits in needs.waits.items() for wait in waits}
    now = computing = exchanging = 0.0
    free = {True: 0.0, False: 0.0}
    ends: dict[int, float] = {}
    for k, step in enumerate(schedule.steps):
        if is_wait(step):
            now = max(now, ends.get(waited.get(k, -1), now))
        elif is_exchange(step):
            assert isinstance(step, ExternStep)
            took, (_, inside) = exchange_seconds(step, schedule, machine), machine.groups(group_of(step))
            free[inside] = ends[k] = max(now, free[inside]) + took
            exchanging += took
            if blocking or not needs.waits[k]:
                now = ends[k]
        else:
            took = seconds(step, schedule, machine)
            now += took
            computing += took
    return Timeline(max(now, *free.values()), computing, exchanging)


__all__ = ["Timeline", "simulate"]
