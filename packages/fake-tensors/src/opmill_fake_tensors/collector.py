"""Keeps Python's cyclic collector out of tracing."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside: Counter[int] = Counter()
"""How many of the blocks below each thread, by its number, is in."""
_was_enabled = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic collection until the outermost such block of any thread ends.

    A capture makes objects by the hundred thousand that nearly all stay alive until it is done: what the collector finds on the way is
    nothing, and each time it walks through all that torch and the user's libraries have imported (a fifth of the time of a first call)."""
    global _was_enabled
    thread = threading.get_ident()
    with _lock:
        if not _inside:
            _was_enabled = gc.isenabled()
            gc.disable()
        _inside[thread] += 1
    try:
        yield
    finally:
        with _lock:
            _leave(thread)


def _leave(thread: int) -> None:
    _inside[thread] -= 1
    if not _inside[thread]:
        del _inside[thread]
        if not _inside and _was_enabled:
            gc.enable()


def _in_forked_child() -> None:
    """Of the threads of its parent a child has only the one that forked it: the blocks of the others never end."""
    global _lock
    _lock = threading.Lock()
    for thread in _inside.keys() - {threading.get_ident()}:
        _inside[thread] = 1
        _leave(thread)


os.register_at_fork(after_in_child=_in_forked_child)

__all__ = ["collector_paused"]
