"""Warnings that captured code gives when its graph has run: which of them may wait so long."""

from __future__ import annotations

import re
import types
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

if TYPE_CHECKING:
    from ..interpretation.frame import Frame
    from ..values.base import Machine


class About(NamedTuple):
    """What filters ask of a warning. ``text``: None where it is not known; ``name``: of the module that is to blame."""

    text: object
    kind: type[Warning]
    name: str
    line: int


def refuse_unless_shown(vm: Machine, about: About) -> None:
    """A warning that is raised, or that the program itself records or filters, cannot wait until the graph has run: refused (FE068)."""
    if (id(warnings.__dict__), "filters") in vm.effects.globals:
        vm.unsupported("FE068", "a warning where the filters have just been changed", "it is shown later, when they are back")
    if any(sees_warnings(value) for running in frames_of(vm.frame) for value in (*running.locals.values(), *running.stack)):
        vm.unsupported("FE068", "a warning inside of catch_warnings", "the program sees what has been recorded")
    if is_raised(warnings, about):
        vm.unsupported("FE068", f"a {about.kind.__name__} that is an error", "it is raised where the program stands")


def assume_shown(vm: Machine, about: About) -> None:
    """Guards that a warning which is given at each call does not become an error."""
    said = f"filters: a {about.kind.__name__} is no error"
    vm.guard(Predicate(Pinned(warnings, "warnings"), lambda now: not is_raised(now, about), said))


def frames_of(frame: Frame | None) -> Iterator[Frame]:
    """A frame and those that called it, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.caller


def sees_warnings(value: object) -> bool:
    """Whether it is a block that records warnings, its end, or its list."""
    obj = getattr(value, "obj", None)
    recorder = getattr(obj, "__self__", obj)
    impl = getattr(warnings, "_showwarnmsg_impl", None)
    return isinstance(recorder, warnings.catch_warnings) or (type(obj) is list and getattr(impl, "__self__", None) is obj)


def is_raised(module: types.ModuleType, about: About) -> bool:
    """Whether the filters of a ``warnings`` module make an exception of a warning."""
    for action, said, category, place, number in module.filters:
        if issubclass(about.kind, category) and number in (0, about.line) and fits(place, about.name):
            if said is None or (about.text is not None and fits(said, str(about.text))):
                return bool(action == "error")
            if about.text is None and action == "error":
                return True
    return bool(module.defaultaction == "error")


def fits(wanted: re.Pattern[str] | str | None, given: str) -> bool:
    """Whether a part of a filter takes a text: those that Python begins with have plain ones."""
    return wanted is None or (given == wanted if isinstance(wanted, str) else wanted.match(given) is not None)


__all__ = ["About", "assume_shown", "refuse_unless_shown"]
