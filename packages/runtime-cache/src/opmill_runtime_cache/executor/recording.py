"""Plans bound so that a device replays what the program did."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..devices.protocol import Executable, devices_of
from ..devices.registry import find
from ..plan.model import Plan
from ..store import Store
from .native import bind


def bind_recorded(plan: Plan, held: Sequence[torch.Tensor], store: Store) -> Executable:
    """As ``bind``, with less work of the program's in each call where a device that the plan uses can replay what it did (CUDA graphs).
    Warns (RC071-RC073) where one could and this plan cannot."""
    executable = bind(plan, held, store)
    for device in dict.fromkeys(find(name) for name in sorted(devices_of(plan))):
        if device is not None:
            executable = device.recorded(plan, held, executable)
    return executable


__all__ = ["bind_recorded"]
