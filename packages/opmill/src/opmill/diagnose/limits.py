"""What this machine can do at most, measured once a process: bytes a second through memory, operations a second in a matrix product."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch
from msgspec import Struct

_COPY_BYTES = 256 << 20
_PRODUCT_SIZE = 1024
_ROUNDS = 5


class Limits(Struct, frozen=True):
    """``bandwidth``: bytes a second, read and written, of a large copy. ``flops``: floating-point operations a second of a square product
    in the element type that it was measured in."""

    bandwidth: float
    flops: float


@functools.cache
def limits_of(device: str, dtype: torch.dtype = torch.float32) -> Limits:
    """The limits of a device; takes some tenths of a second the first time."""
    with torch.inference_mode():
        numbers = torch.empty(_COPY_BYTES // 8, dtype=torch.float32, device=device).fill_(1)
        copy = torch.empty_like(numbers)
        bandwidth = _COPY_BYTES / _best(lambda: copy.copy_(numbers), device)
        a = torch.ones(_PRODUCT_SIZE, _PRODUCT_SIZE, dtype=dtype, device=device)
        out = torch.empty_like(a)
        flops = 2 * _PRODUCT_SIZE**3 / _best(lambda: torch.mm(a, a, out=out), device)
    return Limits(bandwidth, flops)


def _best(run: Callable[[], object], device: str) -> float:
    """Seconds of the quickest of some runs."""
    run()
    return min(timed(run, device) for _ in range(_ROUNDS))


def timed(run: Callable[[], object], device: str) -> float:
    """Seconds that ``run`` takes, until the device has done what it started."""
    wait(device)
    start = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - start


def wait(device: str) -> None:
    """Until an accelerator has done all that it was given; a processor has already."""
    if torch.device(device).type != "cpu":
        torch.get_device_module(device).synchronize(device)
