"""What a machine can do at most: bytes a second through memory and through its caches, operations a second in a matrix product.

``opmill doctor`` measures and keeps that; where nobody did, it is measured once in a process that asks."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import torch
from msgspec import Struct

from opmill_runtime_cache.devices.registry import find, traits_of
from opmill_runtime_cache.store import default_root

_COPIES = (256 << 10, 4 << 20, 32 << 20, 256 << 20)
"""Bytes that are read and written: within a cache of one processor, within what all share, beyond both."""
_PRODUCTS = (256, 512, 1024)
"""Sizes of square matrices: a busy machine does not give a large product all of itself."""
_LARGE_PRODUCTS = (4096, 8192)
"""Those that it takes to have an accelerator at work."""
TF32 = "tf32"
"""Products of float32 whose operands are rounded to what tensor cores take."""
_KINDS = ("float32", "float64", "bfloat16")
_PATIENCE_S = 0.15
_MOST_ROUNDS = 200


class Limits(Struct, frozen=True):
    """``copies``: for numbers of bytes, ascending, the most bytes a second that are read and written where so many are. ``products``:
    floating-point operations a second of a product, by element type (``TF32`` for one more way to multiply float32)."""

    copies: tuple[tuple[int, float], ...]
    products: dict[str, float]

    @property
    def bandwidth(self) -> float:
        """Bytes a second through memory."""
        return self.copies[-1][1]

    def bandwidth_of(self, moved: int) -> float:
        """Bytes a second that so many bytes can be moved with: few of them may lie in a cache."""
        return max(speed for size, speed in self.copies if size >= moved or size == self.copies[-1][0])


@functools.cache
def limits_of(device: str) -> Limits:
    """The limits of a device: those that were kept, else measured, which takes about a second."""
    return _kept().get(_name(device)) or measured(device, ("float32",))


@functools.cache
def flops_of(device: str, kind: str) -> float:
    """Floating-point operations a second of products on a device, of elements of this type."""
    if kind.startswith("float8"):
        return 2 * flops_of(device, "bfloat16")  # where there is a difference, it is this
    kept = limits_of(device).products
    if kind in kept or kind == "float32":
        return kept["float32"] if kind not in kept else kept[kind]
    with torch.inference_mode(), contextlib.suppress(RuntimeError):  # a type that it does not multiply
        return _fastest(device, kind)
    return flops_of(device, "float32")


def measured(device: str, kinds: Sequence[str] = ()) -> Limits:
    """The limits of a device as they are now, each the best of some rounds; of products of these kinds, or of all."""
    found: dict[str, float] = {}
    with torch.inference_mode():
        copies = tuple((size, _copy_speed(size, device)) for size in _COPIES)
        for kind in kinds or (*_KINDS, *(("float16", TF32) if traits_of(device).matrix_units else ())):
            with contextlib.suppress(RuntimeError):
                found[kind] = _fastest(device, kind)
    return Limits(copies, found)


def _fastest(device: str, kind: str) -> float:
    return max(_product_speed(size, device, kind) for size in (_PRODUCTS if traits_of(device).host else _LARGE_PRODUCTS))


def _copy_speed(size: int, device: str) -> float:
    numbers = torch.empty(size // 8, dtype=torch.float32, device=device).fill_(1)
    copy = torch.empty_like(numbers)
    return size / _best(lambda: copy.copy_(numbers), device)


def _product_speed(size: int, device: str, kind: str) -> float:
    a = torch.ones(size, size, device=device, dtype=getattr(torch, kind.replace(TF32, "float32")))
    out = torch.empty_like(a)
    with _multiplying(kind):
        return 2 * size**3 / _best(lambda: torch.mm(a, a, out=out), device)


@contextlib.contextmanager
def _multiplying(kind: str) -> Iterator[None]:
    """Where products of float32 are rounded as ``kind`` says."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = kind == TF32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _best(run: Callable[[], object], device: str) -> float:
    """Seconds of the quickest of some runs: without the host's part where the device tells these."""
    place = find(device)
    if place is not None and not place.traits.host:
        with contextlib.suppress(RuntimeError):  # it tells none
            return place.seconds(run, torch.device(device).index or 0)
    run()
    found, end = [timed(run, device)], time.perf_counter() + _PATIENCE_S
    while len(found) < _MOST_ROUNDS and time.perf_counter() < end:
        found.append(timed(run, device))
    return min(found)


def timed(run: Callable[[], object], device: str) -> float:
    """Seconds that ``run`` takes, until the device has done what it started."""
    wait(device)
    start = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - start


def wait(device: str) -> None:
    """Until an accelerator has done all that it was given; a processor has already."""
    if not traits_of(device).host:
        torch.get_device_module(device).synchronize(device)


_KEPT = msgspec.json.Decoder(dict[str, Limits])

# --- kept -----------------------------------------------------------------------------------------------------------------------------


def keep(device: str, limits: Limits) -> bool:
    """Keeps what was measured beside the cache, for processes to come; False where that cannot be written."""
    try:
        file = _file()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_bytes(msgspec.json.encode({**_kept(), _name(device): limits}))
        os.replace(part, file)
    except OSError:
        return False
    limits_of.cache_clear()
    flops_of.cache_clear()
    return True


def _kept() -> dict[str, Limits]:
    try:
        return _KEPT.decode(_file().read_bytes())
    except (OSError, msgspec.MsgspecError):
        return {}


def _file() -> Path:
    return Path(default_root()) / "limits.json"


def _name(device: str) -> str:
    """What is measured: a model of a device, with as many threads as there are."""
    if traits_of(device).host:
        return f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads of {os.cpu_count()}"
    properties = getattr(torch.get_device_module(device), "get_device_name", None)
    return str(properties(device)) if properties is not None else device


__all__ = ["TF32", "Limits", "flops_of", "keep", "limits_of", "measured", "timed", "wait"]
