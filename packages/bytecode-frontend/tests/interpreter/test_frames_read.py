"""Debuggers, test runners and loggers read the variables of frames (``f_locals``), of running ones and of those in tracebacks: also of frames
that run what captured code was made into. The interpreter trusts that code: a free variable without its cell would crash it."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Callable

import pytest
import torch

from opmill_bytecode_frontend import CaptureOptions, capture


def read(frame: FrameType | None) -> None:
    while frame is not None and frame.f_code is not test_frames_can_be_read.__code__:
        dict(frame.f_locals)
        frame = frame.f_back


@torch.compiler.disable
def look(value: Any = None, fails: bool = False) -> Any:
    read(sys._getframe())
    if fails:
        raise ValueError(value)
    return value


def decided(text: str) -> int:
    return len(text) if text == "first" else 2


def inner_function(x: torch.Tensor, text: str, fails: bool) -> Any:
    first, second, never = x + 1, x + 2, x + 3

    def inner(y: torch.Tensor) -> Any:
        if y is None:
            return never
        y = y + first
        look(y, fails)
        look(decided(text))
        return y * second

    return inner(x)


def breaks_twice(x: torch.Tensor, text: str, fails: bool) -> Any:
    first, second, third = x + 1, 2, [x]

    def inner(y: torch.Tensor) -> Any:
        look(first)
        y = y + first * second
        look(second + decided(text), fails)
        third.append(y)
        look(y)
        return len(third), y

    return inner(x), third


def writes_its_cells(x: torch.Tensor, text: str, fails: bool) -> Any:
    count, total = 0, x

    def inner(y: torch.Tensor) -> Any:
        nonlocal count, total
        count += 1
        look(count)
        total = total + y * count
        look(total * decided(text), fails)
        return total

    return inner(x), inner(x + 1), count


def inside_blocks(x: torch.Tensor, text: str, fails: bool) -> Any:
    told = []
    factor = x * 2

    def inner(y: torch.Tensor) -> Any:
        for i in range(2):
            try:
                with torch.no_grad():
                    y = y * factor + look(i, fails)
            finally:
                told.append(look(i * decided(text)))
        return y

    return inner(x), told


def two_deep(x: torch.Tensor, text: str, fails: bool) -> Any:
    factor = x * 2

    def outer(y: torch.Tensor) -> Any:
        offset = y + factor

        def inner(z: torch.Tensor) -> Any:
            look(z)
            return z * factor + look(offset * decided(text), fails)

        return inner(y) + look(factor)

    return outer(x)


def suspended(x: torch.Tensor, text: str, fails: bool) -> Any:
    factor = x * 2

    def turns(n: int) -> Any:
        for i in range(n):
            yield factor * look(i) + decided(text)

    return [look(each, fails) for each in turns(3)], sum(look(i) for i in range(3) if factor is not None)


def given_to_sort(x: torch.Tensor, text: str, fails: bool) -> Any:
    order, seen = {3: 0, 1: 1, 2: 2}, []

    def key(value: int) -> int:
        seen.append(look(value, fails))
        return order[value] + look(decided(text))

    return sorted(order, key=key), seen, x + 1


class Named:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __del__(self) -> None:
        pass


def handed_over(x: torch.Tensor, text: str, fails: bool) -> Any:
    factor = x * 2

    def inner(held: Any, y: torch.Tensor) -> Any:
        look(held.value)
        del held
        y = y + look(factor, fails) + decided(text)
        return look(y)

    return inner(Named(1), x)


PROGRAMS = (inner_function, breaks_twice, writes_its_cells, inside_blocks, two_deep, suspended, given_to_sort, handed_over)


def outcome(function: Callable[..., Any], text: str, fails: bool) -> Any:
    try:
        return function(torch.ones(2), text, fails)
    except ValueError as error:
        traceback, named = error.__traceback__, []
        while traceback is not None:
            read(traceback.tb_frame)
            named.append(traceback.tb_frame.f_code.co_name)
            traceback = traceback.tb_next
        return repr(error), [name for name in named if name in ("inner", "look", "key")]


@pytest.mark.filterwarnings("ignore:FE090")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("limit", [1, 8], ids=["as they are", "captured"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_frames_can_be_read(program: Callable[..., Any], limit: int, fails: bool) -> None:
    """Where no more is to be compiled, functions that go on behind a break run as they are."""
    captured = capture(program, "eager", options=CaptureOptions(recompile_limit=limit))
    for text in ("first", "second", "first", "third", "second"):
        assert repr(outcome(captured, text, fails)) == repr(outcome(program, text, fails))
