"""Objects that tell when they die, in cells of functions that captured code is given or makes: no capture and no guard keeps them."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend.entry.capture import capture

told: list[str] = []


@torch.compiler.disable
def outside(*given: Any) -> Any:
    return given


class Tells:
    def __init__(self, held: object) -> None:
        self.held = held

    def __del__(self) -> None:
        told.append("gone")


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def nested(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def noted(function: Callable[..., Any]) -> Callable[..., Any]:
    function.__dict__["noted"] = True
    return function


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def program(decorator: Callable[..., Any], first: bool, called: bool, own: bool) -> Callable[..., Any]:
    """A function that gives such an object to a function of its own, which ``decorator`` is given."""

    def with_class_outside(x: torch.Tensor, word: str) -> object:
        if first:
            outside()
        kept = Tells(word)

        @decorator
        def inner(more: int) -> object:
            nonlocal word
            word += str(more)
            return kept.held

        return (inner(1) if called else x + 1), outside(word)

    def with_class_inside(x: torch.Tensor, word: str) -> object:
        if first:
            outside()

        class Own(Tells):
            pass

        kept = Own(word)

        @decorator
        def inner(more: int) -> object:
            return kept, more

        return (len(inner(1)) if called else x + 1), outside(word)

    return with_class_inside if own else with_class_outside


@pytest.mark.parametrize("decorator", [wrapped, nested, noted, plain])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.usefixtures("no_collector")
def test_what_a_function_keeps_dies_with_it(decorator: Callable[..., Any], first: bool, called: bool, own: bool) -> None:
    function = program(decorator, first, called, own)
    compiled = capture(function)  # type: ignore[arg-type]
    for word in ("ab", "z", "ab", "c"):
        seen = []
        for each in (function, compiled):
            told.clear()
            each(torch.ones(2), word)
            seen.append(list(told))
        assert seen[0] == seen[1] == ["gone"], word
