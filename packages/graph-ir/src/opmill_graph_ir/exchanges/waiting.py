"""Plans that exchange tensors with other processes: where one runs for long, or fails, what the others said of themselves is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from opmill_fake_tensors.telling import tell
from opmill_runtime_cache.errors import RuntimeCacheError
from opmill_runtime_cache.plan.model import Call, Plan

from ..errors import GraphWarning
from ..overloads import exchanges
from .others import told

HINT = (
    "processes should compile alike: the same breaks, sizes that change marked by opmill.mark_dynamic on all; one that compiles "
    "while others wait needs a longer timeout of the process group, or a shared cache (OPMILL_CACHE_URL)"
)


def exchanges_in(plan: Plan) -> bool:
    """Whether other processes take part in the plan."""
    return any(type(s) is Call and exchanges(s.op) for s in plan.steps) or any(map(exchanges_in, plan.bodies))


class Watched:
    """An executable (a callable with ``take``) whose calls are watched: see `Watch`."""

    def __init__(self, executable: Any, name: str, watch: Watch) -> None:
        self._executable, self._name, self._watch = executable, name, watch

    def __call__(self, *inputs: Any) -> Any:
        with self._watch.running(self._name):
            return self._executable(*inputs)

    def take(self, inputs: list[Any]) -> Any:
        with self._watch.running(self._name):
            return self._executable.take(inputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executable, name)


class Watch:
    """Looks after plans that run. One that has run for ``limit`` seconds warns once (GI070), from a thread of its own; errors of one that
    fails get a note. Safe for many threads."""

    def __init__(self, limit: float, warn: Callable[[str], object] | None = None) -> None:
        self.limit = limit
        self._warn = warn or (lambda text: tell(GraphWarning(text), 2))
        self._state = threading.Condition()
        self._running: dict[int, tuple[str, float]] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        number = self._begin(name)
        try:
            yield
        except RuntimeError as error:  # process groups raise nothing more special
            if not isinstance(error, RuntimeCacheError) and (lines := told()):
                error.add_note(f"GI070: other processes take part in {name}{_reasons(lines)}")
            raise
        finally:
            self._running.pop(number, None)

    def _begin(self, name: str) -> int:
        record = name, time.monotonic()
        self._running[id(record)] = record
        # none yet, or it has ended with nothing to look after; or this is a forked child
        if self._thread is None or not self._thread.is_alive():
            with self._state:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._look, name="opmill-exchanges", daemon=True)
                    self._thread.start()
        return id(record)

    def _look(self) -> None:
        """Ends when nothing has run for a while."""
        warned: set[int] = set()
        while True:
            with self._state:
                self._state.wait(self.limit / 4)
            running = dict(self._running)
            if not running:
                return
            warned &= running.keys()
            for number, (name, since) in running.items():
                if (passed := time.monotonic() - since) > self.limit and number not in warned:
                    warned.add(number)
                    lines = told() or ["no other process has said anything of a compile"]
                    self._warn(f"GI070: {name} waits for other processes, for {passed:.0f} s by now{_reasons(lines)}")


def _reasons(lines: list[str]) -> str:
    return "".join([*(f"\n  why: {line}" for line in lines), f"\n  hint: {HINT}"])


def watching(binder: Callable[..., Any], limit: float) -> Callable[..., Any]:
    """A binder of plans whose executables are watched where other processes take part; ``limit``: in seconds, 0 for never."""
    if not limit or not torch.distributed.is_available():
        return binder
    watch = Watch(limit)

    def bind(plan: Plan, held: Any, store: Any) -> Any:
        executable = binder(plan, held, store)
        return Watched(executable, f"the graph {plan.name!r}", watch) if exchanges_in(plan) else executable

    return bind


__all__ = ["Watch", "Watched", "exchanges_in", "watching"]
