"""Arguments that reach ``object`` through ``super()`` are errors, with Python's own text; ones that a class takes are none."""

from __future__ import annotations

import types
from typing import Any

import pytest
from alike import outcome

from opmill_bytecode_frontend import capture


class Passing:
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)


class Bare:
    pass


class Made:
    def __new__(cls, *given: Any) -> Any:
        return super().__new__(cls)


class Table(dict):
    def __init__(self, *given: Any) -> None:
        super(dict, self).__init__(*given)


class Pair(tuple):
    pass


def renamed() -> Any:
    try:
        Passing(state=1)
    except TypeError as error:
        raise ValueError(f"not taken: {error}") from error


def derived() -> None:
    class Derived(Passing, wide=True):
        pass


PROGRAMS = [
    lambda: Passing(1),
    lambda: Passing() is None,
    lambda: object.__init__(Bare(), 1),
    lambda: object.__init__(Bare()),
    lambda: Bare(1),
    lambda: (Made(1) is None, object.__init__(Made(), 2), super(Made, Made(1)).__init__(3)),
    lambda: Table({1: 2}),
    lambda: object.__init__(Pair(), 1),
    lambda: object.__init__([], 1),
    lambda: object.__init__(3, 4),
    lambda: object.__init__(Bare, 1),
    lambda: Passing.__init_subclass__(wide=True),
    lambda: object.__init_subclass__(1),
    lambda: object.__init_subclass__(),
    renamed,
    derived,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_arguments_of_object(program: Any) -> None:
    assert outcome(capture(program, "eager")) == outcome(program)


# --- a module's own __getattr__, given in captured code -------------------------------------------------------------------------------


MODULE = types.ModuleType("of_this_test")


def look(name: str) -> Any:
    try:
        return getattr(MODULE, name)
    except AttributeError as error:
        raise KeyError(name) from error


def given() -> Any:
    MODULE.__getattr__ = lambda name: name * 2  # type: ignore[method-assign]
    try:
        found = look("ab"), MODULE.cd, hasattr(MODULE, "ef")
        MODULE.ab = 1
        found += (look("ab"), "ab" in vars(MODULE))
        del MODULE.ab
        return *found, look("ab")
    finally:
        del MODULE.__getattr__


def taken() -> Any:
    return outcome(look, "ab"), outcome(lambda: MODULE.cd)


@pytest.mark.parametrize("program", [given, taken])
def test_getattr_of_a_module(program: Any) -> None:
    compiled = capture(program, "eager")
    for _ in range(2):
        assert compiled() == program()
