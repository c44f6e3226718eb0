"""What compiling a graph did, and how it is shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from opmill_runtime_cache.plan.model import Call, Launch, Plan

from .options import GraphOptions


class Report(Struct):
    """What compiling one graph did: ``phases`` in seconds, whether the plan came from the store, and how much there is to run.

    ``operators_only``: why the whole graph is made of torch's own operators; ``calls_instead``: why some of it is."""

    phases: dict[str, float] = {}
    cached: bool = False
    kernels: int = 0
    launches: int = 0
    calls: int = 0
    arena_bytes: int | str = 0
    operators_only: str = ""
    calls_instead: tuple[str, ...] = ()
    plan: Plan | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def counted(self, *plans: Plan) -> Report:
        """Itself, with what the plans run."""
        self.plan, self.arena_bytes = plans[0], plans[0].arena
        self.kernels = sum(len(plan.kernels) for plan in plans)
        self.launches = sum(type(s) is Launch for plan in plans for s in plan.steps)
        self.calls = sum(type(s) is Call for plan in plans for s in plan.steps)
        return self


def show(step: str, ir: object, options: GraphOptions) -> None:
    """Prints the program after a step where the options ask for it; ``ir``: the program, or what gives its text when it is called."""
    if step in options.print_after or "all" in options.print_after:
        print(f"# after {step}\n{ir() if callable(ir) else ir}\n", file=sys.stderr)
