"""Real functions that warn where they are called at capture: a warning is the program's to show, in its line, at each call."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

import torch

from opmill_fake_tensors.forking import ForkLock
from opmill_fake_tensors.passing import interrupting
from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

if TYPE_CHECKING:
    from .base import Machine


Filter = tuple[str, re.Pattern[str] | None, type[Warning] | tuple[type[Warning], ...], re.Pattern[str] | None, int]
ALWAYS: Filter = ("always", None, Warning, None, 0)
_one_at_a_time = ForkLock()
_hearing: list[_Hearing] = []
"""Those that are heard in, the outermost first."""


def is_ignored(filters: Iterable[Filter], default: str, heard: warnings.WarningMessage, module: str) -> bool:
    """Whether the filters leave out a warning that is given in ``module``."""
    for action, text, category, place, line in filters:
        if (
            issubclass(heard.category, category)
            and line in (0, heard.lineno)
            and (text is None or text.match(str(heard.message)))
            and (place is None or place.match(module))
        ):
            return bool(action == "ignore")
    return default == "ignore"


class _Hearing:
    """How warnings were shown before, and those that are heard in this thread since. Those of other threads are shown as ever."""

    def __init__(self, always: bool) -> None:
        self.switches = always and not torch.is_warn_always_enabled()
        self.thread, self.heard = threading.get_ident(), list[warnings.WarningMessage]()
        self.show, self.filters = warnings._showwarnmsg, warnings.filters  # type: ignore[attr-defined]

    def hear(self, message: warnings.WarningMessage) -> None:
        if threading.get_ident() == self.thread:
            self.heard.append(message)
        elif not is_ignored(self.filters, warnings.defaultaction, message, PurePath(message.filename).stem):  # type: ignore[attr-defined]
            self.show(message)

    def end(self) -> None:
        """Warnings are shown as before."""
        warnings._showwarnmsg, warnings.filters = self.show, self.filters  # type: ignore[attr-defined]
        if self.switches:
            torch.set_warn_always(False)
        if self in _hearing:
            _hearing.remove(self)


@contextlib.contextmanager
def hearing(always: bool = False) -> Iterator[list[warnings.WarningMessage]]:
    """The warnings of this thread, whatever the filters say, in place of showing them. Those of other threads are shown as ever.
    ``always``: also those that torch gives once in a process, which it will still give."""
    with _one_at_a_time.block:
        here = _Hearing(always)
        try:
            _hearing.append(here)
            # Not by catch_warnings: it makes Python forget what it has shown once.
            warnings._showwarnmsg, warnings.filters = here.hear, [ALWAYS]  # type: ignore[attr-defined]
            if here.switches:
                torch.set_warn_always(True)
            yield here.heard
        finally:  # first of all without a call, at which a signal's handler might raise
            warnings._showwarnmsg, warnings.filters = here.show, here.filters  # type: ignore[attr-defined]
            here.end()


def _in_forked_child() -> None:
    """A thread that was hearing is not there any more."""
    for each in [each for each in reversed(_hearing) if each.thread != threading.get_ident()]:
        each.end()


os.register_at_fork(after_in_child=_in_forked_child)


def still_ignored(heard: warnings.WarningMessage, module: str) -> Callable[[types.ModuleType], bool]:
    """Whether the filters of a ``warnings`` module still ignore a warning that was heard in ``module``."""
    return lambda now: is_ignored(now.filters, now.defaultaction, heard, module)


def called_at_capture(vm: Machine, function: Callable[..., object], args: list[object], kwargs: dict[str, object]) -> object:
    """What a real function gives; its exception is the program's. Where a warning of it would be seen, the program calls it itself."""
    failed = None
    with hearing() as heard:
        try:
            result = function(*args, **kwargs)
        except Exception as exc:
            if interrupting(exc) is not None:
                raise
            failed = exc.with_traceback(None)  # which knows this frame, and that its callers
    for each in heard:
        globals().pop("__warningregistry__", None)
        name = PurePath(each.filename).stem
        if each.filename == __file__:  # given in the name of the caller
            name, each.lineno = str(vm.frame.globals.get("__name__")), vm.frame.line or 0
        said = f"a {each.category.__name__}"
        if not is_ignored(warnings.filters, warnings.defaultaction, each, name):  # type: ignore[attr-defined]
            called = getattr(function, "__qualname__", function)
            vm.unsupported("FE068", f"a warning of {called}", "it is given where the program stands, at each call")
        vm.guard(Predicate(Pinned(warnings, "warnings"), still_ignored(each, name), f"filters: {said} is ignored"))
    if failed is not None:
        vm.throw_real(failed)
    return result


__all__ = ["called_at_capture", "hearing", "is_ignored"]
