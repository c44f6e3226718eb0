"""Which of several ways to write a kernel is the fastest, by running them on the device.

All ways run on the same memory: numbers drawn at random, indices zero. A kernel that takes microseconds is repeated inside a CUDA graph, so that it
is the device that is timed and not the host. Where measuring is not possible (no memory, another device, a stream that records),
the first way is taken, which the cost model has chosen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import torch

from opmill_graph_ir.loops.ir import LoopKernel
from opmill_runtime_cache.executor import cuda
from opmill_runtime_cache.executor.kernels import CudaKernel
from opmill_runtime_cache.plan.launch import LaunchData

from .budget import Budget
from .tiling import UNKNOWN

GAIN = 0.97
"""Of the first way's time: another one is taken only if it is below, so that noise chooses nothing."""
_BYTES_SHARE = 4
"""Memory may be taken up to this part of what is free."""
_SPAN_S = 2e-3
_REPEATS = 3
_MOST = 200


def variants(budget: Budget) -> list[Budget]:
    """Budgets to try, the given one first: tiles, rows kept whole or walked, the bytes of a row that a thread takes, warps."""
    changes: tuple[dict[str, int], ...] = (
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
    )
    return [replace(budget, **change) for change in changes]


def fastest(kernel: LoopKernel, ways: Sequence[tuple[LaunchData, bytes]], device: torch.device) -> int:
    """The position of the fastest of ``ways`` (launch data and cubins) to run ``kernel`` on ``device``."""
    if len(ways) < 2 or torch.cuda.is_current_stream_capturing():
        return 0
    try:
        with torch.cuda.device(device), torch.no_grad():
            times = [_seconds(kernel, data, cubins, device) for data, cubins in ways]
    except (torch.OutOfMemoryError, RuntimeError):
        return 0
    best = min(range(len(ways)), key=times.__getitem__)
    return best if times[best] < GAIN * times[0] else 0


def _seconds(kernel: LoopKernel, data: LaunchData, cubins: bytes, device: torch.device) -> float:
    """Seconds of one run; infinite where a check fails, as nothing is computed then."""
    sizes, memory = _memory(kernel, device)
    entry = CudaKernel(f"measured/{hashlib.sha256(cubins).hexdigest()}", data, cubins)  # functions are kept in the process by this name
    pointers, values = [t.data_ptr() for t in memory], [sizes[s] for s in kernel.symbols]
    error = torch.zeros(1, dtype=torch.int32, device=device)
    one = _timed(lambda: cuda.start(entry, device.index, pointers, values, error))
    one = min(one, _timed(lambda: cuda.start(entry, device.index, pointers, values, error)))
    if int(error.item()):
        return float("inf")
    graph = torch.cuda.CUDAGraph()
    count = max(1, min(_MOST, int(_SPAN_S / max(one, 1e-7))))
    with torch.cuda.graph(graph):
        kept = [cuda.start(entry, device.index, pointers, values, error) for _ in range(count)]
    del kept
    graph.replay()
    return min(_timed(graph.replay) for _ in range(_REPEATS)) / count


def _timed(run: object) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()  # type: ignore[operator]
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


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
    return sizes, [_filled(n, getattr(torch, b.dtype), device) for n, b in zip(counts, kernel.buffers, strict=True)]


def _filled(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    tensor = torch.zeros(count, dtype=dtype, device=device)
    return tensor.normal_() if dtype.is_floating_point else tensor


__all__ = ["fastest", "variants"]
