"""``isinstance`` by what an object has: protocols, and marks of tensors, which captured code or the program may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import pytest
import torch
from torch import nn

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.options import CaptureOptions


@runtime_checkable
class Named(Protocol):
    name: str


@runtime_checkable
class Going(Protocol):
    def go(self) -> Any: ...


@runtime_checkable
class Both(Named, Going, Protocol): ...


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Goes(Plain):
    def go(self) -> int:
        return 1


class Asked(Plain):
    @property
    def name(self) -> str:
        return "a"


def kinds(o: Any) -> list[bool]:
    return [isinstance(o, Named), isinstance(o, Going), isinstance(o, Both), isinstance(o, (int, Named))]


def given(o: Any, x: Any) -> Any:
    o.name = "a"
    return kinds(o), x + 1


def taken(o: Any, x: Any) -> Any:
    o.__dict__.pop("name", None)
    return kinds(o), x + 1


def hidden(o: Any, x: Any) -> Any:
    o.go = None
    return kinds(o), x + 1


def made(o: Any, x: Any) -> Any:
    return kinds(Plain(name=1, go=len)), kinds(Goes(name=2)), kinds(x), x + 1


def looked_at(o: Any, x: Any) -> Any:
    match o:
        case Both():
            return "both", x + 1
        case Named():
            return "named", x + 1
    return kinds(o), x + 1


MAKERS: list[Callable[[], Any]] = [
    Plain,
    lambda: Plain(name="b"),
    Goes,
    lambda: Goes(name="b"),
    lambda: Plain(go=1),
    lambda: Goes(go=None),
    Asked,
    lambda: 3,
    lambda: torch.ones(1),
]


@pytest.mark.parametrize("function", [given, taken, hidden, made, looked_at], ids=lambda f: f.__name__)
def test_protocols_ask_the_object_as_it_is(function: Callable[..., Any]) -> None:
    captured = capture(function, lambda gm, inputs: gm.forward, options=CaptureOptions(recompile_limit=100))
    for make in (*MAKERS, *reversed(MAKERS)):
        if type(make()) is int and function in (given, taken, hidden):
            continue
        if isinstance(make(), (Asked, torch.Tensor)) and function is given:
            continue
        assert captured(make(), torch.ones(2))[0] == function(make(), torch.ones(2))[0], (make(), vars(make()) if make() != 3 else None)


def test_buffers_are_known_by_their_mark() -> None:
    def program(b: torch.Tensor, x: torch.Tensor) -> Any:
        return isinstance(b, nn.Buffer), isinstance(b, nn.Parameter), isinstance(nn.Buffer(x), nn.Buffer), isinstance(x + 1, nn.Buffer)

    captured = capture(program, lambda gm, inputs: gm.forward)
    for make in (nn.Buffer, torch.clone, nn.Parameter, nn.Buffer):
        assert captured(make(torch.ones(2)), torch.ones(2)) == program(make(torch.ones(2)), torch.ones(2))
