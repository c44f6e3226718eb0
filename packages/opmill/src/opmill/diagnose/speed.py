"""Seconds of whole calls, beside each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

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
    found = []
    for _ in range(calls):
        wait(device)
        start = time.perf_counter()
        once(run)
        wait(device)
        found.append(time.perf_counter() - start)
    return statistics.median(found) if found else 0.0


def compared(compiled: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of a call in eager, and of one compiled. What they write is written as often."""
    device, program = device_of((args, kwargs)), uncompiled(compiled)
    return (
        seconds_of(lambda: program(*args, **kwargs), _CALLS, device),
        seconds_of(lambda: compiled(*args, **kwargs), _CALLS, device),
    )


__all__ = ["compared", "device_of", "seconds_of"]
