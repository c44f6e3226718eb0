"""Keeps Python's cyclic collector out of tracing."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside: dict[int, int] = {}
"""How many of the blocks below each thread, by its number, is in."""
_was_enabled = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic collection until the outermost such block of any thread ends.

    A capture makes objects by the hundred thousand that nearly all stay alive until it is done: what the collector finds on the way is
    nothing, and each time it walks through all that torch and the user's libraries have imported (a fifth of the time of a first call)."""
    global _was_enabled
    thread, entered = threading.get_ident(), False
    # A signal's handler may raise behind any call: what is begun stands inside of the try, and what ends it calls nothing before.
    try:
        with _lock:
            inside = _inside.get(thread, 0)
            _inside[thread] = inside + 1
            entered = True
            if len(_inside) == 1 and not inside:
                _was_enabled = gc.isenabled()
                gc.disable()
        yield
    finally:
        if entered:
            with _lock:
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
        del _inside[thread]
        if not _inside and _was_enabled:
            gc.enable()


os.register_at_fork(after_in_child=_in_forked_child)

__all__ = ["collector_paused"]
