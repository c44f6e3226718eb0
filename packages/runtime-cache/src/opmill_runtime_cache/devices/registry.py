"""Devices by name, found by entry point."""

from __future__ import annotations

import warnings
from functools import lru_cache
from importlib.metadata import entry_points
from types import MappingProxyType

import torch

from ..errors import ExecutorWarning
from . import cpu, cuda
from .protocol import GROUP, Device, Traits

_OWN = {device.type: device for device in (cpu.DEVICE, cuda.DEVICE)}
"""Entries of this package: looking through what is installed takes milliseconds, which a program on these devices need not wait for."""
_NONE = Traits()


@lru_cache(None)
def find(name: str) -> Device | None:
    """The device of a name (``"cuda:0"``) or of a type (``"cuda"``); None where no plug-in is installed for it."""
    kind = name.partition(":")[0]
    return _OWN.get(kind) or _outside().get(kind)


@lru_cache(None)
def of_type(number: int) -> Device | None:
    """The device whose type torch numbers so."""
    own = next((device for device in _OWN.values() if device.number == number), None)
    return own or next((device for device in _outside().values() if device.number == number), None)


@lru_cache(None)
def traits_of(name: str) -> Traits:
    """What is known of the device of a name; nothing, where no plug-in is installed for it."""
    device = find(name)
    return _NONE if device is None else device.traits


@lru_cache(None)
def number_of(name: str) -> int:
    """The number of a device in native code, see ``Device.numbered``. Raises KeyError for one without a plug-in."""
    device = find(name)
    if device is None:
        raise KeyError(name)
    return device.numbered(torch.device(name).index)


def types() -> list[str]:
    """The types of devices that a program of this process may use: those of this package, and the one that torch has beside them."""
    return list(dict.fromkeys((*_OWN, torch._C._get_accelerator().type)))


@lru_cache(None)
def runner(kind: str) -> Device | None:
    """The device that runs kernels of a kind (``KernelRef.kind``); None where none does."""
    own = next((device for device in _OWN.values() if kind in device.kinds), None)
    return own or next((device for device in _outside().values() if kind in device.kinds), None)


@lru_cache(1)
def _outside() -> MappingProxyType[str, Device]:
    """Devices of other packages. One that cannot be loaded is left out, with a warning."""
    found = {}
    for entry in entry_points(group=GROUP):
        if entry.name in _OWN:
            continue
        try:
            device = entry.load()
            found[entry.name] = device() if isinstance(device, type) else device
        except MemoryError:
            raise
        except Exception as error:
            warnings.warn(f"[RC074] the device {entry.name} of {entry.value} cannot be loaded: {error}", ExecutorWarning, stacklevel=2)
    return MappingProxyType(found)


__all__ = ["find", "number_of", "of_type", "runner", "traits_of", "types"]
