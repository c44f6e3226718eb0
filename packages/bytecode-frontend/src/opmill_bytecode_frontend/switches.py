"""Switches of the thread that captured code may set: grad mode and autocast."""

from __future__ import annotations

from typing import Any

import torch

DEVICES = ("cpu", "cuda")


def switches() -> dict[Any, tuple[Any, ...]]:
    """Each switch as what sets it: key -> (function, arguments)."""
    found: dict[Any, tuple[Any, ...]] = {
        "grad": (torch._C._set_grad_enabled, torch.is_grad_enabled()),
        "cache": (torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled()),
    }
    for device in DEVICES:
        found["enabled", device] = (torch.set_autocast_enabled, device, torch.is_autocast_enabled(device))
        found["dtype", device] = (torch.set_autocast_dtype, device, torch.get_autocast_dtype(device))
    return found


def switched(before: dict[Any, tuple[Any, ...]], now: dict[Any, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What to call to come from one state to the other."""
    return [call for key, call in now.items() if before[key] != call]


def autocast_nesting() -> int:
    """How many autocast blocks the thread is in."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())
