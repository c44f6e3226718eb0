"""Locks that captured code makes."""

from __future__ import annotations

import _thread
from typing import TYPE_CHECKING

from ...values.base import Value
from ...values.locks import MadeLock
from ..registry import handles

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


@handles(_thread.allocate_lock)
def lock(vm: Interpreter) -> Value:
    """``threading.Lock()``."""
    return MadeLock(_thread.LockType)


@handles(_thread.RLock)
def reentrant_lock(vm: Interpreter) -> Value:
    """``threading.RLock()``."""
    return MadeLock(_thread.RLock)
