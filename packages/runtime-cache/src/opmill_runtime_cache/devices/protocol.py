"""What a device is to plans. Devices join through the entry-point group ``opmill.devices``: the entry is a :class:`Device`, its name
torch's name of the device's type."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import msgspec
import torch

from ..plan.contract import Contract
from ..plan.model import Alloc, Call, Constant, KernelRef, Named, Plan, TensorInput
from ..store import Store

GROUP = "opmill.devices"
UNKNOWN = -2
"""The number of a device that only the tensor itself tells."""
_INDEX_BITS = 8
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64))


@dataclass(frozen=True)
class Traits:
    """What compiled code has to know of a device. A new device begins with none of them, which is right for every device and fast for
    few."""

    host: bool = False
    """Its memory is the process's own: the program reads numbers in it without waiting, and arenas are kept between calls."""
    processor: bool = False
    """torch's operators on it are those for processors: they look at the values that they are given, add up in double precision, and lay
    out what they make as processors do."""
    grid: bool = False
    """A kernel is a grid of programs that run side by side: starting one costs more than a loop saves, and neighbours share what they
    read."""
    matrix_units: bool = False
    """Products in half precision have units of their own, which want channels last and rows of whole vectors."""
    asynchronous: bool = False
    """Kernels run behind the program, which learns of a failed check when it is too late to undo anything."""


class Kernel(Protocol):
    """A kernel that can be started."""

    @property
    def contract(self) -> Contract | None:
        """What it touches; None where somebody else answers for each launch of it."""

    def run(self, index: int | None, pointers: Sequence[int], sizes: Sequence[int]) -> int:
        """Runs it on device ``index`` of its type, on torch's current stream there, and waits; 0, or 1 + the number of its check that
        failed."""


class HostKernel(msgspec.Struct, frozen=True):
    """A kernel that is started by calling a function of this process, at ``address``: ``int64_t entry(void* const* pointers, const int64_t*
    sizes)``. On a device with a host of its own kind that is the kernel; on another, what puts it on torch's current stream there. It
    takes memory of devices of ``type`` (torch's number). ``contract`` None: its maker answers for each launch."""

    address: int
    contract: Contract | None = None
    type: int = 0

    def run(self, index: int | None, pointers: Sequence[int], sizes: Sequence[int]) -> int:
        array = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
        return int(_ENTRY(self.address)(array, (ctypes.c_int64 * max(1, len(sizes)))(*sizes)))


Loader = Callable[[KernelRef, Store], Kernel]
"""From a generated artifact to a kernel. Raises KernelMissing (RC031) where the store lacks it, BindError (RC032, RC033) where it cannot be
loaded."""
Executable = Callable[..., tuple[Any, ...]]


class Device:
    """One type of device. ``type``: torch's name of it; ``number``: torch's number (``c10::DeviceType``); ``kinds``: how kernels of each
    kind that it runs are made ready (``KernelRef.kind``).

    Memory is torch's: tensors and arenas come from the allocator that is registered with torch for the device, and operators are torch's.
    So a type has to be known to torch, as one of its own or as ``PrivateUse1`` under another name."""

    type: str
    number: int
    traits: Traits = Traits()
    kinds: Mapping[str, Loader] = MappingProxyType({})

    def unavailable(self) -> str | None:
        """Why kernels cannot be run in this process; None where they can. Asked once a plan is bound that uses the device."""
        return None

    def current(self) -> int:
        """The index that tensors get on this device where none is given; nothing is started to find it out."""
        return 0

    def shim(self, op: str) -> tuple[str, str] | None:
        """A C function of torch's for an operator (``"aten::mm.out"``) on tensors that all lie on this device: its symbol, and its
        signature as ``native/shims.cpp`` spells it. None: the operator is called through torch's dispatcher."""
        return None

    def seconds(self, run: Callable[[], object], index: int) -> float:
        """How long the device takes for what ``run`` starts on torch's current stream. Raises what ``run`` raises, and RuntimeError where
        it cannot be timed."""
        raise RuntimeError(f"nothing on {self.type} is timed")

    def recorded(self, plan: Plan, held: Sequence[torch.Tensor], executable: Executable) -> Executable:
        """``executable``, the plan bound, or something that runs the same with less work of the program's. Warns (RC071-RC073) where the
        device could do so and this plan cannot."""
        return executable

    def numbered(self, index: int | None) -> int:
        """Its number with an index, as native code counts devices: -1 for the host, else torch's number of the type above the index."""
        return -1 if self.number == 0 else self.number << _INDEX_BITS | (index or 0)


def devices_of(plan: Plan) -> set[str]:
    """The names of the devices on which a plan has tensors, or asks torch's operators to make some."""
    specs = [item.spec for item in (*plan.inputs, *plan.constants) if isinstance(item, (TensorInput, Constant))]
    specs += [step.spec for step in plan.steps if type(step) is Alloc]
    calls = [step for step in plan.steps if type(step) is Call]
    named = {arg.name for call in calls for arg in (*call.args, *call.kwargs.values()) if type(arg) is Named and arg.kind == "device"}
    return {spec.device for spec in specs} | named | {spec.device for call in calls for spec in call.specs if spec is not None}


def type_of(number: int) -> int:
    """torch's number of the type of a numbered device."""
    return 0 if number < 0 else number >> _INDEX_BITS


def index_of(number: int) -> int:
    """The index of a numbered device, -1 for the host."""
    return -1 if number < 0 else number & (1 << _INDEX_BITS) - 1


__all__ = ["GROUP", "UNKNOWN", "Device", "Executable", "HostKernel", "Kernel", "Loader", "Traits", "devices_of", "index_of", "type_of"]
