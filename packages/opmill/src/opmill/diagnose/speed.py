"""Seconds of whole calls, beside each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from opmill_runtime_cache.devices.host import HOST
from opmill_runtime_cache.devices.registry import traits_of

from ..compile import running_uncompiled
from .copies import modules_of, tensors_of, uncompiled
from .limits import wait
from .symptoms import once

_WARM = 3
_CALLS = 10


def device_of(values: Any, model: Any = None) -> str:
    """The device that a call is at work on, by its arguments, and by the tensors of ``model``: another one than the processor, where there
    is one."""
    held = [] if model is None else [*(p for each in modules_of(model) for p in each.parameters()), *tensors_of(model)]
    devices = (str(t.device) for t in (*pytree.tree_leaves(values), *held) if isinstance(t, torch.Tensor))
    return next((d for d in devices if not traits_of(d).host and torch.device(d).type != "meta"), HOST)


def warm(*runs: Callable[[], Any]) -> None:
    """Calls each, with the backward of what it returns, some times."""
    for run in runs * _WARM:
        once(run)


def eagerly(run: Callable[[], Any]) -> Callable[[], Any]:
    """A call during which nothing that was compiled runs so."""

    def call() -> Any:
        with running_uncompiled():
            return run()

    return call


def in_turns(eager: Callable[[], Any], own: Callable[[], Any], calls: int, device: str) -> tuple[float, float]:
    """Seconds of a call, with the backward of what it returns, without anything compiled and with it: medians of some, taken in turns."""
    with running_uncompiled():
        warm(eager)
    warm(own)
    found: tuple[list[float], list[float]] = [], []
    for _ in range(calls):
        with running_uncompiled():
            found[0].append(_timed(eager, device))
        found[1].append(_timed(own, device))
    return statistics.median(found[0]), statistics.median(found[1])


def _timed(run: Callable[[], Any], device: str) -> float:
    wait(device)
    start = time.perf_counter()
    once(run)
    wait(device)
    return time.perf_counter() - start


def compared(compiled: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of a call in eager, and of one compiled. What they write is written as often."""
    program = uncompiled(compiled)
    device = device_of((args, kwargs), program)
    return in_turns(lambda: program(*args, **kwargs), lambda: compiled(*args, **kwargs), _CALLS, device)


__all__ = ["compared", "device_of", "eagerly", "in_turns", "warm"]
