"""Keeps Python's cyclic collector out of tracing."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0
_was_enabled = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic collection until the outermost such block of any thread ends.

    A capture makes objects by the hundred thousand that nearly all stay alive until it is done: what the collector finds on the way is
    nothing, and each time it walks through all that torch and the user's libraries have imported (a fifth of the time of a first call)."""
    global _inside, _was_enabled
    with _lock:
        if not _inside:
            _was_enabled = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _was_enabled:
                gc.enable()


__all__ = ["collector_paused"]
