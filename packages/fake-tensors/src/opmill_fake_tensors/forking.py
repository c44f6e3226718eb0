"""What a process forked while another thread compiles needs to go on: free locks, and no half-imported modules.

A child has a copy of everything, but of its parent's threads only the one that forked. A lock that another thread held stays locked for
ever, and a module that another thread was importing never gets ready: whoever imports it waits, for ever too."""

from __future__ import annotations

import _imp
import importlib
import os
import threading
import weakref
from contextlib import AbstractContextManager, suppress
from types import TracebackType

from .imports import PACKAGES


class ForkLock:
    """A re-entrant lock that is free in a forked child, whichever other thread held it in the parent. What it guards has to be consistent
    wherever an exception could end the holder: that is how a child finds it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def acquire(self, blocking: bool = True) -> bool:
        """Takes the lock; False where another thread has it and ``blocking`` is false."""
        return self._lock.acquire(blocking)

    @property
    def block(self) -> AbstractContextManager[bool]:
        """What ``with`` takes and gives back without a moment between that and its block, at which a signal's handler might raise."""
        return self._lock

    def is_mine(self) -> bool:
        """Whether this thread has it."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def release(self) -> None:
        """Gives the lock back. Raises RuntimeError where nobody has it."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self._lock.release()

    def free(self) -> None:
        """Takes it from a thread that is gone."""
        if not self.is_mine():
            self._lock = threading.RLock()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()
_holder: list[int] = []
"""The thread that holds Python's import lock from before its fork until after it."""


def _imported_elsewhere() -> set[str]:
    """The modules, of those that compiling needs, that other threads are importing. The modules of a program are not waited for: their
    import may take as long as the program runs."""
    locks = getattr(importlib._bootstrap, "_module_locks", {})
    held = {name: lock for name, reference in list(locks.items()) if name.startswith(PACKAGES) and (lock := reference()) is not None}
    return {name for name, lock in held.items() if getattr(lock, "owner", None) not in (None, threading.get_ident())}


def _before_fork() -> None:
    """Waits until no other thread is in the middle of an import that compiling needs, and lets none begin until the fork is done."""
    hopeless: set[str] = set()
    while True:
        _imp.acquire_lock()  # who has it begins imports; one that has begun needs it again for every further module
        waiting = _imported_elsewhere() - hopeless
        if not waiting:
            _holder.append(threading.get_ident())
            return
        _imp.release_lock()
        for name in waiting:
            try:
                importlib.import_module(name)
            except Exception:  # it fails in the other thread as well, or that thread waits for one that this thread is importing
                hopeless.add(name)


def _after_fork() -> None:
    if threading.get_ident() in _holder:
        _holder.clear()
        _imp.release_lock()


def _in_forked_child() -> None:
    with suppress(RuntimeError):  # this Python does not hand the import lock on to children: it is free
        _after_fork()
    for lock in list(_locks):
        lock.free()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_child)

__all__ = ["ForkLock"]
