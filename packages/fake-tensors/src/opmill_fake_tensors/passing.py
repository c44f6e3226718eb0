"""Failures that say nothing of the program: of the machine, at the moment."""

from __future__ import annotations

import errno
import signal
from traceback import walk_tb
from types import CodeType

_PASSING = frozenset(
    getattr(errno, name)
    for name in (
        "ENOMEM",
        "EAGAIN",
        "EMFILE",
        "ENFILE",
        "EINTR",
        "EIO",
        "ENOSPC",
        "EDQUOT",
        "EBUSY",
        "ENOBUFS",
        "ETIMEDOUT",
        "ESTALE",
        "ETXTBSY",
    )
    if hasattr(errno, name)
)
_TEXTS = ("not enough memory", "out of memory", "can't allocate memory", "cannot allocate memory", "can't start new thread")


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or one that it comes from, says that there was no memory (torch says so by a RuntimeError)."""
    return any(isinstance(e, MemoryError) or (isinstance(e, RuntimeError) and _says(e)) for e in _behind(error))


def may_pass(error: BaseException) -> bool:
    """Whether what failed may work a moment later: there was no memory, no room on the disk, no process or file to be had, or the program
    interrupted it. What comes of such a failure is not kept."""
    behind = _behind(error)
    return out_of_memory(error) or any(isinstance(e, OSError) and e.errno in _PASSING for e in behind) or interrupting(error) is not None


def interrupting(error: BaseException) -> BaseException | None:
    """The exception, or one that it comes from, that a handler of a signal has raised (a time limit of the program's, say): nothing that
    was going on has failed, and whoever waits for the exception is around it."""
    handlers = _handlers()
    return next((e for e in _behind(error) if handlers and any(frame.f_code in handlers for frame, _ in walk_tb(e.__traceback__))), None)


def _handlers() -> set[CodeType]:
    """The code of the Python functions that handle signals now."""
    found = set()
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if not callable(handler):
            continue
        function = handler if hasattr(handler, "__code__") or hasattr(handler, "__func__") else type(handler).__call__
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, CodeType):
            found.add(code)
    return found


def _says(error: RuntimeError) -> bool:
    text = str(error).lower()
    return any(each in text for each in _TEXTS)


def _behind(error: BaseException | None) -> list[BaseException]:
    """An exception, and those that it was raised from or while."""
    found: list[BaseException] = []
    while error is not None and all(error is not each for each in found):
        found.append(error)
        error = error.__cause__ if error.__cause__ is not None or error.__suppress_context__ else error.__context__
    return found


__all__ = ["interrupting", "may_pass", "out_of_memory"]
