"""Seconds of whole calls, beside each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..compile import running_uncompiled
from .copies import uncompiled
from .limits import wait
from .symptoms import once

_WARM = 3
_CALLS = 10


def device_of(values: Any) -> str:
    """The device that a call is at work on, by its arguments: another one than the processor, where there is one."""
    devices = [str(t.device) for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor)]
    return next((d for d in devices if d != "cpu"), "cpu")


def seconds_of(run: Callable[[], Any], calls: int, device: str) -> float:
    """The median of some calls, each with the backward of what it returns, behind some that warm up; 0 for none."""
    for _ in range(_WARM):
        once(run)
    found = [_timed(run, device) for _ in range(calls)]
    return statistics.median(found) if found else 0.0


def eagerly(run: Callable[[], Any]) -> Callable[[], Any]:
    """A call during which nothing that was compiled runs so; nor does its backward, which no call of it begins."""

    def call() -> Any:
        with running_uncompiled():
            return run()

    return call


def _timed(run: Callable[[], Any], device: str) -> float:
    wait(device)
    start = time.perf_counter()
    once(run)
    wait(device)
    return time.perf_counter() - start


def compared(compiled: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of a call in eager, and of one compiled: medians of some, taken in turns. What they write is written as often."""
    device, program = device_of((args, kwargs)), uncompiled(compiled)
    runs = eagerly(lambda: program(*args, **kwargs)), lambda: compiled(*args, **kwargs)
    for run in runs * _WARM:
        once(run)
    turns = [[_timed(run, device) for run in runs] for _ in range(_CALLS)]
    eager, own = (statistics.median(times) for times in zip(*turns, strict=True))
    return eager, own


__all__ = ["compared", "device_of", "eagerly", "seconds_of"]
