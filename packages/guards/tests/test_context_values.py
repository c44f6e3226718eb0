"""What context variables hold, read natively and in Python."""

from __future__ import annotations

from contextvars import Context, ContextVar
from typing import Any

import pytest

from opmill_guards import GuardSet, reference
from opmill_guards.guard import Equals
from opmill_guards.source import ContextValue, Local

PLAIN: ContextVar[Any] = ContextVar("plain")
WITH_DEFAULT: ContextVar[Any] = ContextVar("with_default", default=4)
SOURCE = ContextValue(Local("it"))


def holds(value: object, expected: object) -> bool:
    return bool(GuardSet([Equals(SOURCE, expected)]).native(["it"]).check(value))


def in_a_context() -> None:
    assert holds(WITH_DEFAULT, 4) and reference.read(SOURCE, {"it": WITH_DEFAULT}) == 4
    assert not holds(PLAIN, None)
    with pytest.raises(reference.Unreadable):
        reference.read(SOURCE, {"it": PLAIN})
    for value in (5, "text", None):
        for variable in (PLAIN, WITH_DEFAULT):
            variable.set(value)
            assert holds(variable, value) and not holds(variable, 4) and reference.read(SOURCE, {"it": variable}) == value


def test_the_running_context_counts() -> None:
    Context().run(in_a_context)
    assert holds(WITH_DEFAULT, 4) and not holds(PLAIN, 5)


@pytest.mark.parametrize("other", [4, None, [4], Context()])
def test_other_objects_hold_nothing(other: object) -> None:
    assert not holds(other, 4)
    with pytest.raises(reference.Unreadable):
        reference.read(SOURCE, {"it": other})
