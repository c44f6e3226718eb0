"""How long something takes on a GPU, without the host's part of it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .capturing import capturing

_SPAN_S = 2e-3
_REPEATS = 3
_MOST = 200


def device_seconds(run: Callable[[], object]) -> float:
    """Seconds that the current device takes for what ``run`` starts on torch's current stream; what it returns is kept until that is done.

    What takes microseconds is repeated inside a CUDA graph, so that the device is timed and not the host. Raises what ``run`` and torch
    raise, where memory ends for one (RuntimeError)."""
    one = min(_timed(run), _timed(run))
    count = max(1, min(_MOST, int(_SPAN_S / max(one, 1e-7))))
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        kept = [run() for _ in range(count)]
    del kept
    graph.replay()
    return min(_timed(graph.replay) for _ in range(_REPEATS)) / count


def _timed(run: Callable[[], object]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


__all__ = ["device_seconds"]
