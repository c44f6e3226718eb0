"""How long each kernel and operator of a plan takes where it really runs: in the native executor, one right behind the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _native
from ..plan.model import Call, Launch, Plan
from ..store import Store
from .native import bind
from .regions import enter, leave

_numbers = itertools.count()


class TimedExecutable:
    """A plan that is bound as :func:`bind` does it, and tells how long its kernels and operators take.

    On a processor the executor looks at the clock, in calls between ``begin`` and ``seconds``. A device is still at work when the executor
    goes on: there each kernel and operator is a region of its own in ``torch.profiler``, which hears from the device; ``names`` says which
    step of the plan a region is."""

    def __init__(self, plan: Plan, held: Sequence[torch.Tensor], store: Store) -> None:
        self.plan, self._number = plan, next(_numbers)
        self._places: tuple[int, ...] = ()
        self._run: Any = bind(plan, held, store, self._described)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        result: tuple[Any, ...] = self._run(*inputs)
        return result

    def take(self, inputs: list[Any]) -> tuple[Any, ...]:
        """A call that empties the list of its inputs."""
        result: tuple[Any, ...] = self._run.take(inputs)
        return result

    def begin(self) -> None:
        """From now on steps are timed."""
        if isinstance(self._run, _native.Executable):
            self._run.time_steps(True)

    def seconds(self) -> dict[int, float]:
        """Seconds of each kernel and operator, by its number among the plan's steps, in all calls since ``begin``; empty before it,
        and where the plan runs in Python."""
        if not isinstance(self._run, _native.Executable):
            return {}
        found = self._run.step_seconds
        self._run.time_steps(False)
        return {step: sum(found[begin:end]) for step, (begin, end) in self._steps().items()} if found else {}

    @property
    def names(self) -> dict[str, int]:
        """Steps of the plan by what a profiler calls them."""
        return {f"opmill step {self._number}.{step}": step for step in self._steps()}

    def _steps(self) -> dict[int, tuple[int, int]]:
        """Kernels and operators, with their first native step and the one behind their last."""
        pairs = zip(self.plan.steps, self._places, self._places[1:], strict=False)
        return {k: (begin, end) for k, (step, begin, end) in enumerate(pairs) if type(step) in (Launch, Call) and begin < end}

    def _described(self, plan: Plan, places: Sequence[int]) -> Callable[[], Any]:
        self._places = tuple(places)
        return self._told

    def _told(self) -> Any:
        """What a profiler hears, see ``regions``: a label for each step, and in it an operator, which is what devices report kernels of."""
        spans = zip(self.names, self._steps().values(), strict=True)
        return enter, leave, tuple(row for name, (begin, end) in spans for row in ((begin, end, 0, name), (end - 1, end, -1, "opmill")))


__all__ = ["TimedExecutable"]
