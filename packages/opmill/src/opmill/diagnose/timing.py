"""Seconds of each kernel and operator of plans in calls of a program: by the clock of the executor on processors, as torch.profiler hears
it from GPUs elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of
from opmill_runtime_cache.executor import TimedExecutable
from opmill_runtime_cache.plan.model import Plan

from .limits import wait

Times = dict[tuple[int, int], list[float]]
"""By plan (its ``id``) and step: seconds in each call."""


def clocked(run: Callable[[], object], plans: Sequence[TimedExecutable], calls: int) -> Times:
    """The times of plans on processors."""
    found: Times = {}
    for _ in range(calls):
        for each in plans:
            each.begin()
        run()
        for each in plans:
            for step, seconds in each.seconds().items():
                found.setdefault((id(each.plan), step), []).append(seconds)
    return found


def heard(run: Callable[[], object], plans: Sequence[TimedExecutable], calls: int) -> Times:
    """The times of plans on accelerators, from torch.profiler, and of those on processors between them; empty where it hears nothing of
    one."""
    from torch.profiler import profile, supported_activities

    steps = {name: (each.plan, step) for each in plans for name, step in each.names.items()}
    devices = {each.plan.device for each in plans}
    with profile(activities=supported_activities(), acc_events=True) as seen:
        for _ in range(calls):
            run()
        for device in devices:
            wait(device)
    events: dict[str, list[float]] = {}
    for event in seen.events():
        if event.name in steps and event.device_type == torch.autograd.DeviceType.CPU:
            took = event.cpu_time_total if traits_of(steps[event.name][0].device).host else event.device_time_total
            events.setdefault(event.name, []).append(took * 1e-6)
    found, silent = {}, set(devices)
    for name, each in events.items():
        plan, step = steps[name]
        found[id(plan), step] = list(_by_call(each, calls))
        if any(each):
            silent.discard(plan.device)
    return {} if silent else found


def _by_call(times: Sequence[float], calls: int) -> Iterator[float]:
    """Sums of times that came one after the other, as many in each call."""
    count = max(1, len(times) // calls)
    return (sum(times[k : k + count]) for k in range(0, len(times), count))


class Stepwise:
    """Times each step by itself, as a watch of the reference executor: for devices that nobody else has times of. They have the host's
    part in them."""

    def __init__(self) -> None:
        self.found: Times = {}
        self._now: dict[tuple[int, int], float] = {}

    def watch(self, plan: Plan, number: int, run: Callable[[], None]) -> None:
        key = id(plan), number
        self._now[key] = self._now.get(key, 0.0) + _timed(run, plan.device)

    def end_call(self) -> None:
        for key, seconds in self._now.items():
            self.found.setdefault(key, []).append(seconds)
        self._now = {}


def _timed(run: Callable[[], None], device: str) -> float:
    if traits_of(device).host:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    begin, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


class Bound:
    """A plan that runs natively, timed, or while ``looks()`` in plain Python, where each step is shown to ``watch``."""

    def __init__(self, timed: TimedExecutable, shown: Any, looks: Callable[[], bool]) -> None:
        self.timed, self.shown, self.looks = timed, shown, looks

    def __call__(self, *inputs: Any) -> Any:
        return (self.shown if self.looks() else self.timed)(*inputs)

    def take(self, inputs: list[Any]) -> Any:
        return (self.shown if self.looks() else self.timed).take(inputs)


__all__ = ["Bound", "Stepwise", "Times", "clocked", "heard"]
