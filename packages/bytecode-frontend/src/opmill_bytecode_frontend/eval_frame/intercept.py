"""The callback that is offered the frames of one thread."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from .. import _native
from .._native import intercept as intercept

Callback = Callable[[CodeType, FunctionType], "Callable[..., Any] | None"]


def set_callback(callback: Callback | None) -> Callback | None:
    """Sets this thread's callback and returns the one before. `intercept` does so for a block.

    ``callback(code, function)`` is asked for every plain Python function (no generator, coroutine, module or class body) that
    starts in this thread. It returns what is called with the same arguments instead, or None to run the function as it is; what
    it raises is raised by the call. While it, or the replacement, runs no frame of the thread is offered.
    """
    return _native.set_callback(callback)


def skip(code: CodeType, skipped: bool = True) -> None:
    """Never offers frames of ``code`` (or does again); what they call is still offered."""
    _native.skip_code(code, skipped)


def is_installed() -> bool:
    """Whether the interpreter evaluates frames through the hook now, because any thread has a callback."""
    return _native.is_installed()


for _own in (set_callback, skip, is_installed):
    skip(_own.__code__)
