"""What torch starts on a GPU, put down as a CUDA graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def capturing(graph: torch.cuda.CUDAGraph, pool: Any = None, stream: torch.cuda.Stream | None = None) -> Iterator[None]:
    """``torch.cuda.graph`` of the current device; other threads may go on meanwhile. Raises what its block raises, and RuntimeError where
    the device will not have it in a graph. Either leaves random numbers as they were: torch's generator of the device goes on believing
    that it is part of a graph where a capture ends in an error, and refuses every later draw of the process."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    try:
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            yield
    except BaseException:
        generator.graphsafe_set_state(generator.clone_state())  # a clone has seed and offset, and is part of no graph
        raise


__all__ = ["capturing"]
