"""How long a device exchanges with others in a step, and how much of that is hidden behind computing, by the profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

STEPS = 3
"""That are profiled."""
EXCHANGE = "nccl"
"""Is part of the names of kernels that exchange."""
Interval = tuple[float, float]


def profiled(step: Callable[[], object]) -> dict[str, Any]:
    """Milliseconds of a step on this process's device: ``computing`` while a kernel computes, ``exchanging`` while one exchanges (waiting
    for the others included), ``exposed`` while one exchanges and none computes, ``idle`` between the first and last with none of
    either. ``exchanges`` a step, the ``streams`` of theirs and of the others', and whether they ``share`` one; ``peak GiB``: the most
    memory in a step, with what else this process keeps."""
    torch.cuda.reset_peak_memory_stats()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    events = [e for e in found.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    exchanges = [e for e in events if EXCHANGE in e.name.lower()]
    others = [e for e in events if EXCHANGE not in e.name.lower()]
    computing, exchanging, either = (joined((e.time_range.start, e.time_range.end) for e in each) for each in (others, exchanges, events))
    whole = either[-1][1] - either[0][0] if either else 0.0
    streams = [sorted({e.device_resource_id for e in each}) for each in (exchanges, others)]
    times = {
        "computing": length(computing),
        "exchanging": length(exchanging),
        "exposed": length(either) - length(computing),
        "idle": whole - length(either),
    }
    return {
        **{f"{name} ms": round(us / 1e3 / STEPS, 3) for name, us in times.items()},
        "exchanges": len(exchanges) // STEPS,
        "kernels": len(others) // STEPS,
        "streams": streams,
        "share": bool(set(streams[0]) & set(streams[1])),
        "peak GiB": round(torch.cuda.max_memory_allocated() / 2**30, 2),
    }


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Those that overlap as one, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)
