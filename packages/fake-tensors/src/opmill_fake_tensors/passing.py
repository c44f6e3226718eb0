"""Failures that say nothing of the program: of the machine, at the moment."""

from __future__ import annotations

import errno

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
    """Whether what failed may work a moment later: there was no memory, no room on the disk, no process or file to be had. What comes of
    such a failure is not kept."""
    return out_of_memory(error) or any(isinstance(e, OSError) and e.errno in _PASSING for e in _behind(error))


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


__all__ = ["may_pass", "out_of_memory"]
