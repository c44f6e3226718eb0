"""NVIDIA's GPUs: kernels are machine code that the driver starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch

from ... import _native
from ...forking import ForkLock
from ...plan.model import Plan
from ..protocol import Device, Executable, Traits
from . import kernel, shims

_loading = ForkLock()


@lru_cache(1)
def load() -> str | None:
    """Connects the extension with the GPU driver and torch's streams; the reason why it cannot be, or None."""
    with _loading:
        return _native.load_cuda(kernel.DRIVER, kernel.TORCH)


@lru_cache(1)
def reaches_host() -> bool:
    """Whether kernels on the first device may be given memory of the process's own, as the driver says."""
    return load() is None and _native.cuda_reaches_host()


class Cuda(Device):
    """NVIDIA's GPUs: kernels as cubins, products by cuBLASLt, calls that are recorded and replayed."""

    type = "cuda"
    number = 1
    traits = Traits(grid=True, matrix_units=True, asynchronous=True)
    kinds = {"cubin": kernel.load_cubin}

    def unavailable(self) -> str | None:
        missing = load()
        return missing and f"{missing}; install NVIDIA's driver, or a torch built with CUDA"

    def shim(self, op: str) -> tuple[str, str] | None:
        return shims.shim(op)

    def current(self) -> int:
        return torch.cuda.current_device() if torch.cuda.is_initialized() else 0

    def seconds(self, run: Callable[[], object], index: int) -> float:
        from .timing import device_seconds

        with torch.cuda.device(index):
            return device_seconds(run)

    def recorded(self, plan: Plan, held: Sequence[torch.Tensor], executable: Executable) -> Executable:
        from .graphs import recorded

        return recorded(plan, held, executable)


DEVICE = Cuda()

__all__ = ["DEVICE", "load", "reaches_host"]
