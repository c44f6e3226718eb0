"""What the program itself decides: names that a module finds by its own ``__getattr__``, operators that nobody takes, what errors of Python's
library know."""

from __future__ import annotations

import collections
import json
import types
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

NOTES: list[object] = []
finding = types.ModuleType("finding")


def find(name: str) -> int:
    NOTES.append(name)
    if not name.startswith("v"):
        raise AttributeError(f"no {name}")
    return int(name[1:])


vars(finding)["__getattr__"] = find


def found(x: torch.Tensor, n: int) -> Any:
    y = x * finding.v3
    try:
        finding.lost  # noqa: B018
    except AttributeError as error:
        NOTES.append(str(error))
    finding.v4 = n  # type: ignore[attr-defined]
    kept = finding.v4
    del finding.v4
    return y, kept, hasattr(finding, "w"), getattr(finding, "u", 5)


class Other:
    def __radd__(self, other: object) -> Any:
        NOTES.append("radd")
        return NotImplemented


LEFT = ["text", b"bytes", bytearray(b"b"), [1], (1,), type("Text", (str,), {})("t"), 1, 2.5, None, {1}, {}, range(2), collections.deque()]


def untaken(x: torch.Tensor, n: int) -> Any:
    told = []
    for left in LEFT:
        for act in (lambda o: left + o, lambda o: left * o, lambda o: o * left, lambda o: o + left):  # noqa: B023
            try:
                told.append(act(Other()))
            except TypeError as error:
                told.append(str(error))
    return x + 1, told


def parsed(x: torch.Tensor, n: int) -> Any:
    try:
        json.loads('{"a": ' + "[" * n)
    except json.JSONDecodeError as error:
        return x + error.pos, error.msg, error.doc, error.lineno, error.colno, vars(error)
    return x


class Answers:
    @property
    def errors(self) -> Any:
        NOTES.append("errors")
        return (KeyError, IndexError)


ANSWERS = Answers()


def caught(x: torch.Tensor, n: int) -> Any:
    """Whether an operation's exception would be caught is found out without asking what the clauses ask."""
    try:
        y = x[: n - 1]
        try:
            y = y + x[n - 1 :].sum()
        finally:
            NOTES.append(ANSWERS.errors)
        [][n]
    except ANSWERS.errors:
        y = y * 2
    try:
        y = y + 1
    except ANSWERS:  # type: ignore[misc]
        NOTES.append("never")
    return (y,)


@pytest.mark.parametrize("program", [found, untaken, parsed, caught])
def test_it_is_asked_as_by_the_plain_function(program: Any) -> None:
    captured, told = capture(program, "eager"), []
    for function in (program, captured):
        for n in (2, 2, 3):
            NOTES.clear()
            x, *rest = function(torch.ones(2), n)
            told.append((x.tolist(), rest, list(NOTES)))
    assert told[3:] == told[:3]
