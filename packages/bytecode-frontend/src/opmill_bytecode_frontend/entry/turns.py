"""Threads that want to capture for one compiled function take turns."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from opmill_fake_tensors.forking import ForkLock


class Turns:
    """One lock for a compiled function with its callees and resume functions."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        _all.add(self._lock)

    def mine(self) -> AbstractContextManager[bool]:
        """Waits until it is this thread's turn, and gives True. Gives False at once where that could be for ever: a thread whose capture
        has led to the call of another compiled function does not wait for threads that capture that one, which may be waiting for this."""
        return self._at_once() if any(lock.is_mine() for lock in list(_all)) else self._lock.block

    @contextmanager
    def _at_once(self) -> Iterator[bool]:
        if not self._lock.acquire(blocking=False):
            yield False
            return
        try:
            yield True
        finally:
            self._lock.release()


_all: weakref.WeakSet[ForkLock] = weakref.WeakSet()

__all__ = ["Turns"]
