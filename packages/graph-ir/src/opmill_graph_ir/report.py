"""What compiling a graph did."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from msgspec import Struct

from opmill_runtime_cache.plan.model import Call, Launch, Plan
from opmill_runtime_cache.store import Store

from .generator.protocol import BuildProgress


class Report(Struct):
    """What compiling one graph did: ``phases`` in seconds, whether the plan came from the store, and how much there is to run.

    ``operators_only``: why the whole graph is made of torch's own operators; ``calls_instead``: why some of it is. ``running``: the step
    that runs now, since ``begun``; ``wanted``: how many kernels are being built then, and ``progress`` how far their generators are.
    ``plans``: ``plan`` and those of its backward; ``loops``: of each, the text of each of its kernels, where the graph was compiled by this
    process (see ``loops_of``); ``key``: under which the store has them."""

    phases: dict[str, float] = {}
    cached: bool = False
    kernels: int = 0
    launches: int = 0
    calls: int = 0
    arena_bytes: int | str = 0
    operators_only: str = ""
    calls_instead: tuple[str, ...] = ()
    plan: Plan | None = None
    running: str = ""
    wanted: int = 0
    begun: float = 0.0
    progress: tuple[BuildProgress, ...] = ()
    plans: tuple[Plan, ...] = ()
    loops: tuple[tuple[str, ...], ...] = ()
    key: str = ""

    def built(self) -> tuple[float, float] | None:
        """Which part of the kernels is built, and the seconds that the others take if they take as long; None where nobody can tell."""
        wanted, done = sum(each.wanted for each in self.progress), sum(each.done for each in self.progress)
        if self.running != "generate" or not 0 < done < wanted:
            return None
        return done / wanted, (time.perf_counter() - self.begun) * (wanted - done) / done

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = self.begun = time.perf_counter()
        self.running = name
        try:
            yield
        finally:
            self.running = ""
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def imported(self, seconds: float) -> bool:
        """Notes that modules of the compiler were imported, which the first graph of a process waits for; False where there were none."""
        if seconds < _IMPORTING_S:
            return False
        self.phases["import"] = self.phases.get("import", 0.0) + seconds
        return True

    def counted(self, *plans: Plan) -> Report:
        """Itself, with what the plans run."""
        self.plan, self.plans, self.arena_bytes = plans[0], plans, plans[0].arena
        self.kernels = sum(len(plan.kernels) for plan in plans)
        self.launches = sum(type(s) is Launch for plan in plans for s in plan.steps)
        self.calls = sum(type(s) is Call for plan in plans for s in plan.steps)
        return self


_IMPORTING_S = 0.005
"""What finding a module that is there takes less than."""
LOOPS = "graph-loops"
"""Artifact kind of the texts of a graph's kernels, as loops."""
_LOOPS = msgspec.msgpack.Decoder(tuple[tuple[str, ...], ...])


def keep_loops(report: Report, key: str, store: Store) -> None:
    """Puts the loops of the kernels into the store, for whoever looks into a graph whose plan came from there."""
    store.put(LOOPS, key, msgspec.msgpack.encode(report.loops))


def loops_of(report: Report, store: Store) -> tuple[tuple[str, ...], ...]:
    """For each of ``report.plans`` the text of each of its kernels, as loops; nothing where neither this process nor the store has them."""
    data = None if report.loops or not report.key else store.get(LOOPS, report.key)
    found = report.loops if data is None else _LOOPS.decode(data)
    return found if [len(each) for each in found] == [len(plan.kernels) for plan in report.plans] else ()
