"""Numbered errors and the warning class of opmill. The numbers are stable and listed in ``docs/reference/errors.md``."""

from __future__ import annotations

import abc
import functools
import sys


class OpmillError(Exception):
    """A numbered error: ``code`` is stable; ``hint`` says what to do."""

    def __init__(self, code: str, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        self.code, self.what, self.where, self.why, self.hint = code, what, where, why, hint
        lines = [f"{code}: {what}", *(f"  {k}: {v}" for k, v in (("where", where), ("why", why), ("hint", hint)) if v)]
        super().__init__("\n".join(lines))


class UsageValueError(OpmillError, ValueError):
    """An argument has a value that is not known: a mode, an option, a backend."""


class UsageTypeError(OpmillError, TypeError):
    """An argument has the wrong type: something that cannot be called, a mode that is no string."""


class OpmillWarning(UserWarning, metaclass=abc.ABCMeta):
    """The program runs and its results are right, but not as fast as asked: says what fell back, and why.

    The warning classes of the packages below, which do not know this one, are registered with it where they are first used: one filter
    for ``OpmillWarning`` is a filter for all of them."""


@functools.cache
def warn_once(code: str, message: str) -> None:
    """Shows a numbered ``OpmillWarning`` the first time in this process. Filters that make errors of warnings are for the program's own,
    which would fail compiled where it does not fail as it is: this one is then logged."""
    from opmill_fake_tensors.telling import tell  # not above: a program may never compile anything

    tell(OpmillWarning(message if message.startswith(code) else f"{code}: {message}"), _levels_to_the_program() + 1)


def _levels_to_the_program() -> int:
    """How many frames above the caller's the program stands that came to call opmill; 1 where only libraries call."""
    frame, level = sys._getframe(2), 1
    while frame.f_globals.get("__name__", "").partition(".")[0].partition("_")[0] in _OURS:
        level += 1
        if frame.f_back is None:
            return 1
        frame = frame.f_back
    return level


_OURS = ("opmill", "torch")
"""How the names of modules begin whose lines nobody can change who meets a warning."""
