"""Locks of this package in a process forked while another thread held them."""

import os
import threading
import weakref


class ForkLock:
    """A re-entrant lock that is free in a forked child, whichever other thread held it in the parent. What it guards has to be consistent
    wherever an exception could end the holder: that is how a child finds it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def free(self) -> None:
        """Takes it from a thread that is gone."""
        if not self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock = threading.RLock()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _in_forked_child() -> None:
    for lock in list(_locks):
        lock.free()


os.register_at_fork(after_in_child=_in_forked_child)
