"""Locks that captured code makes and that leave it: made anew, and held as often as they are there."""

from __future__ import annotations

import _thread

from ..values.locks import LockValue, MadeLock
from .rebuild import Rebuilder, rebuilds


@rebuilds(LockValue)
def lock_of_before(r: Rebuilder, value: LockValue) -> str:
    """A lock of before the call: read where it came from."""
    return r.source(value.source)


@rebuilds(MadeLock)
def made_lock(r: Rebuilder, value: MadeLock) -> str:
    """A lock of its kind."""
    make = r.constants.name(_thread.RLock if value.kind is _thread.RLock else _thread.allocate_lock)
    name = r.assign(value, f"{make}()")
    r.body += [f"{name}.acquire()"] * value.depth
    return name


__all__ = ["lock_of_before", "made_lock"]
