"""What compiling a graph did."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from opmill_runtime_cache.plan.model import Call, Launch, Plan


class Report(Struct):
    """What compiling one graph did: ``phases`` in seconds, whether the plan came from the store, and how much there is to run.

    ``operators_only``: why the whole graph is made of torch's own operators; ``calls_instead``: why some of it is. ``running``: the step that runs now;
    ``wanted``: how many kernels are being built then."""

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

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start, self.running = time.perf_counter(), name
        try:
            yield
        finally:
            self.running = ""
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def counted(self, *plans: Plan) -> Report:
        """Itself, with what the plans run."""
        self.plan, self.arena_bytes = plans[0], plans[0].arena
        self.kernels = sum(len(plan.kernels) for plan in plans)
        self.launches = sum(type(s) is Launch for plan in plans for s in plan.steps)
        self.calls = sum(type(s) is Call for plan in plans for s in plan.steps)
        return self
