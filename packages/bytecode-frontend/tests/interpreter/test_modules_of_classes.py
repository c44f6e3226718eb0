"""What a class says of its module may be anything: a property, None, a number, a text of no module. Extensions in C have descriptors there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

SAID: dict[str, Any] = {
    "property": property(lambda self: "somewhere"),
    "None": None,
    "number": 5,
    "empty": "",
    "dots": "...",
    "list": ["a"],
    "descriptor": type.__dict__["__doc__"],
}


class Plain:
    value = 3

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.value

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.value


class Metaclass(type):
    pass


class Module(torch.nn.Module):
    value = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return self(x) * 2


def method(x: Any, given: Any) -> Any:
    return given.method(x)


def called(x: Any, given: Any) -> Any:
    return given(x)


def compared(x: Any, given: Any) -> Any:
    return x + 1 if isinstance(given, type(given)) and type(given).value == 3 else x


def key(x: Any, given: Any) -> Any:
    return x + {given: 1}[given]


def given_back(x: Any, given: Any) -> Any:
    return x + 1, given


def written(x: Any, given: Any) -> Any:
    given.other = x + given.value
    return given.other * 2


def asked(x: Any, given: Any) -> Any:
    return x + len(str(type(given).__module__))


def broken(x: Any, given: Any) -> Any:
    print(end="")
    return given.method(x) + given.value


def made(x: Any, given: Any) -> Any:
    return type(given)().method(x)


def length(x: Any, given: Any) -> Any:
    return x + len(given) + len(list(given))


def added(x: Any, given: Any) -> Any:
    return given + type(given)([1]), x


def raised(x: Any, given: Any) -> Any:
    try:
        raise given
    except type(given) as error:
        return x + len(error.args)


def class_of(x: Any, given: Any) -> Any:
    return x + given.value, given


OBJECTS = [method, called, compared, key, given_back, written, asked, broken, made]
SEQUENCES = [length, given_back, compared, added, asked]


def holds(function: Callable[..., Any], make: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    captured, x = capture(function, "eager"), torch.arange(3.0)
    given = make()
    for _ in range(2):
        expected, found = function(x, given), captured(x, given)
        assert repr(found) == repr(expected)
    assert not [each for each in caplog.messages if "internal error" in each]


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("function", OBJECTS)
@pytest.mark.parametrize("base", [Plain, Module])
def test_of_objects(base: type, function: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    holds(function, type("Made", (base,), {"__module__": SAID[said]}), caplog)


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("function", SEQUENCES)
@pytest.mark.parametrize("base", [tuple, list])
def test_of_sequences(base: type, function: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    kind: Any = type("Made", (base,), {"__module__": SAID[said], "value": 3})
    holds(function, lambda: kind((1, 2)), caplog)


@pytest.mark.parametrize("said", SAID)
def test_of_exceptions_and_metaclasses(said: str, caplog: pytest.LogCaptureFixture) -> None:
    holds(raised, type("Made", (ValueError,), {"__module__": SAID[said]}), caplog)
    metaclass: Any = type("Made", (Metaclass,), {"__module__": SAID[said]})
    kind = metaclass("Made", (Plain,), {"__module__": "m"})
    holds(class_of, lambda: kind, caplog)
    holds(method, kind, caplog)
    holds(class_of, lambda: type("Made", (Plain,), {"__module__": SAID[said]}), caplog)


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("base", [Plain, Module])
def test_what_changes_in_the_class_is_seen(base: type, said: str) -> None:
    kind: Any = type("Made", (base,), {"__module__": SAID[said], "value": 3})
    captured, x, given = capture(broken, "eager"), torch.ones(2), kind()
    for value in (3, 4, 5):
        kind.value = value
        assert torch.equal(captured(x, given), broken(x, given))
        kind.method = lambda self, x, by=value: x * by
        assert torch.equal(captured(x, given), broken(x, given))


@pytest.mark.parametrize("said", [None, 5, "", ["a"]])
def test_of_functions(said: Any, caplog: pytest.LogCaptureFixture) -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    inner.__module__ = said
    holds(called_inside, lambda: inner, caplog)
    captured, x = capture(inner, "eager"), torch.ones(2)
    assert torch.equal(captured(x), x * 2)


def called_inside(x: torch.Tensor, given: Any) -> torch.Tensor:
    y = given(x)
    print(end="")
    return given(y) + 1
