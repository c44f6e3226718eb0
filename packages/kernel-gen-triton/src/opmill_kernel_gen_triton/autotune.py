"""Which of several ways to write a kernel is the fastest, by running them on the device.

All ways run on the same memory: numbers drawn at random, indices zero, half of the blocks that a mask lists. Where measuring is not
possible (no memory, another device, a stream that records), the first way is taken, which the cost model has chosen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from opmill_graph_ir.loops.ir import Attention, LoopKernel
from opmill_runtime_cache.devices.cuda import kernel as cuda
from opmill_runtime_cache.devices.cuda.kernel import CudaKernel
from opmill_runtime_cache.devices.cuda.timing import device_seconds
from opmill_runtime_cache.plan.launch import LaunchData

from .attention.shape import OTHERS
from .budget import Budget, DotShape
from .dots.match import dot_of
from .dots.shape import OF_FLOATS, SHAPES
from .tiling import UNKNOWN

GAIN = 0.97
"""Of the first way's time: another one is taken only if it is below, so that noise chooses nothing."""
_BYTES_SHARE = 4
"""Memory may be taken up to this part of what is free."""


def variants(budget: Budget, dots: Sequence[DotShape] = ()) -> list[Budget]:
    """Budgets to try, the given one first: tiles, rows kept whole or walked, the bytes of a row that a thread takes, warps, how many
    go over rows and columns at once. ``dots``: tiles of products."""
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"shift": 1},
        {"shift": -1},
        {"tile": budget.tile * 2},
        {"tile": budget.tile // 2},
        {"tile": budget.tile * 2, "shift": 1},
        {"tile": budget.tile // 2, "shift": -1},
        {"ahead": 1},
        {"ahead": 1, "shift": -1},
        {"ahead": 2, "shift": -1},
        {"longest": 1024},
        {"longest": 1024, "tile": budget.tile * 2},
        {"chunk": budget.chunk // 2, "steps": budget.steps // 2},
        {"chunk": budget.chunk * 2, "steps": budget.steps * 2},
        {"resident": 0},
        {"resident": budget.resident // 2},
        {"resident": budget.resident * 2},
    )
    return [replace(budget, **change) for change in (*changes, *({"dot": shape} for shape in dots), *({"attention": a} for a in OTHERS))]


def tiles_of(kernel: LoopKernel) -> list[DotShape]:
    """The tiles to try for the products of a kernel."""
    sizes = dict.fromkeys(kernel.symbols, UNKNOWN)
    types = {dot.dtype for nest in kernel.nests if (dot := dot_of(nest, sizes)) is not None}
    return [shape for shapes, of in ((SHAPES, types - {"float32"}), (OF_FLOATS, types & {"float32"})) if of for shape in shapes]


def fastest(kernel: LoopKernel, ways: Sequence[tuple[LaunchData, bytes]], device: torch.device) -> int:
    """The position of the fastest of ``ways`` (launch data and cubins) to run ``kernel`` on ``device``."""
    if len(ways) < 2 or torch.cuda.is_current_stream_capturing():
        return 0
    try:
        with torch.cuda.device(device), torch.no_grad():
            times = [seconds(kernel, data, cubins, device) for data, cubins in ways]
    except (torch.OutOfMemoryError, RuntimeError):
        return 0
    best = min(range(len(ways)), key=times.__getitem__)
    return best if times[best] < GAIN * times[0] else 0


def seconds(kernel: LoopKernel, data: LaunchData, cubins: bytes, device: torch.device) -> float:
    """Seconds of one run; infinite where a check fails, as nothing is computed then."""
    sizes, memory = _memory(kernel, device)
    entry = CudaKernel(f"measured/{hashlib.sha256(cubins).hexdigest()}", data, cubins)  # functions are kept in the process by this name
    pointers, values = [t.data_ptr() for t in memory], [sizes[s] for s in kernel.symbols]
    error = torch.zeros(1, dtype=torch.int32, device=device)
    cuda.start(entry, device.index, pointers, values, error)
    if int(error.item()):
        return float("inf")
    return device_seconds(lambda: cuda.start(entry, device.index, pointers, values, error))


def _memory(kernel: LoopKernel, device: torch.device) -> tuple[dict[str, int], list[torch.Tensor]]:
    """Sizes for the symbols, and a tensor for each buffer. Raises RuntimeError where even small ones do not fit."""
    free = torch.cuda.mem_get_info(device)[0] // _BYTES_SHARE
    guess = UNKNOWN
    while True:
        sizes = dict.fromkeys(kernel.symbols, guess)
        counts = [max(1, b.numel.evaluate(sizes)) for b in kernel.buffers]
        if sum(n * getattr(torch, b.dtype).itemsize for n, b in zip(counts, kernel.buffers, strict=True)) <= free:
            break
        if not kernel.symbols or guess == 1:
            raise RuntimeError("too large to be measured")
        guess //= 2
    memory = {b.name: _filled(n, getattr(torch, b.dtype), device) for n, b in zip(counts, kernel.buffers, strict=True)}
    if kernel.attention is not None:
        list_blocks(kernel.attention, memory)
    return sizes, list(memory.values())


def list_blocks(found: Attention, memory: Mapping[str, torch.Tensor]) -> None:
    """Half of all blocks, as of a causal mask: each way has something to do."""
    others, block = (found.queries, found.query_block) if found.part == "keys" else (found.keys, found.key_block)
    blocks = {name: memory[placed.buffer] for name, placed in found.operands if name in found.BLOCKS}
    for name, tensor in blocks.items():
        count = -(-others // block)
        if name in ("count", "full_count"):
            tensor.fill_(-(-count // len(blocks)))  # two tensors of each kind of blocks
        else:
            tensor.copy_(torch.arange(tensor.numel(), device=tensor.device) % count)


def _filled(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    tensor = torch.zeros(count, dtype=dtype, device=device)
    return tensor.normal_() if dtype.is_floating_point else tensor


__all__ = ["fastest", "list_blocks", "seconds", "variants"]
