"""Threads that want to capture for one compiled function take turns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from opmill_fake_tensors.forking import ForkLock


class _Held(threading.local):
    turns = 0


_held = _Held()


class Turns:
    """One lock for a compiled function with its callees and resume functions."""

    def __init__(self) -> None:
        self._lock = ForkLock()

    @contextmanager
    def mine(self) -> Iterator[bool]:
        """Waits until it is this thread's turn. Gives False at once where that could be for ever: a thread whose capture has led to the
        call of another compiled function does not wait for threads that capture that one, which may be waiting for this."""
        if not self._lock.acquire(blocking=not _held.turns):
            yield False
            return
        _held.turns += 1
        try:
            yield True
        finally:
            _held.turns -= 1
            self._lock.release()


__all__ = ["Turns"]
