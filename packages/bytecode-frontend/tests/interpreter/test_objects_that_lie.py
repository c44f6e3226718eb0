"""Objects that say they are of another class than they are, or fail when they are asked: proxies whose object is gone, mocks, properties
named ``__class__``. Only the program asks them."""

import logging
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from opmill_bytecode_frontend import capture

ASKED: list[str] = []


class Plain:
    value = 2


class Liar:
    value = 3

    @property
    def __class__(self) -> type:
        ASKED.append("class")
        return dict


class Fails:
    value = 4

    @property
    def __class__(self) -> type:
        ASKED.append("class")
        raise ReferenceError("nobody is there")


class ListLiar(list):
    __class__ = tuple


ALIVE = Plain()
OBJECTS: dict[str, Callable[[], Any]] = {
    "plain": Plain,
    "liar": Liar,
    "fails": Fails,
    "list": lambda: ListLiar([1]),
    "mock of a list": lambda: mock.NonCallableMock(spec=[]),
    "mock of a dict": lambda: mock.NonCallableMock(spec={}),
    "dead proxy": lambda: weakref.proxy(Plain()),
    "proxy": lambda: weakref.proxy(ALIVE),
}
HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "argument": (lambda o: o, lambda h: h),
    "item": (lambda o: [o], lambda h: h[0]),
    "value": (lambda o: {"k": o}, lambda h: h["k"]),
    "attribute": (lambda o: SimpleNamespace(o=o), lambda h: h.o),
    "cell": (lambda o: lambda: o, lambda h: h()),
    "tuple": (lambda o: (o, 1), lambda h: h[0]),
}


def is_listed(o: Any) -> object:
    return o if isinstance(o, (list, tuple)) else [o]


def told(o: Any) -> object:
    try:
        return isinstance(o, dict), type(o).__name__
    except ReferenceError as error:
        return str(error)


def attribute(o: Any) -> object:
    try:
        return o.value
    except (AttributeError, ReferenceError) as error:
        return type(error).__name__


USES = {"handed on": lambda o: [o], "is_listed": is_listed, "told": told, "attribute": attribute, "same": lambda o: (o is o, o is None)}


def looked_at(value: object, o: object) -> object:
    """A result that can be compared: the object itself by identity."""
    if value is o:
        return "the object"
    return [looked_at(each, o) for each in value] if type(value) in (list, tuple) else value


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("use", USES)
def test_only_the_program_asks_what_they_are(holder: str, use: str, caplog: pytest.LogCaptureFixture) -> None:
    hold, get = HOLDERS[holder]
    used = USES[use]

    def program(x: torch.Tensor, h: Any) -> tuple[object, torch.Tensor]:
        y = x + 1
        return used(get(h)), y * 2

    compiled = capture(program, lambda gm, inputs: gm.forward)
    x = torch.ones(2)
    for name in [*OBJECTS, *reversed(OBJECTS)]:
        found = []
        for run in (program, compiled):
            o = OBJECTS[name]()
            ASKED.clear()
            try:
                result: object = looked_at(run(x, hold(o))[0], o)
            except ReferenceError as error:
                result = str(error)
            found.append((result, len(ASKED)))
        assert found[0] == found[1], name
    assert [
        r.getMessage()
        for r in caplog.records
        if r.name.startswith("opmill") and r.levelno >= logging.WARNING and "internal" in r.getMessage()
    ] == []
