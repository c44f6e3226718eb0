"""Calls that each bring something else: one warning, which names the expression and says what to do."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


class Thing:
    pass


KNOWN: dict[Any, int] = {}
#: The program, what call n brings, the expression, and a word of the remedy.
HERDS: dict[str, tuple[Callable[..., Any], Callable[[int], Any], str, str]] = {
    "objects": (lambda x, thing: x * 2 if thing in KNOWN else x, lambda n: Thing(), "thing", "which one it is"),
    "sets": (lambda x, chosen: x * 2 if 3 in chosen else x, lambda n: {n}, "chosen", "contents"),
    "texts": (lambda x, name: x * len(name), lambda n: f"name {n}", "name", "another value"),
    "attributes": (lambda x, thing: x * len(thing.name), lambda n: named(n), "thing", "another value"),
    "names of a dictionary": (lambda x, table: x * sum(table.values()), lambda n: {f"k{n}": 1}, "table", "another value"),
}


def named(n: int) -> Thing:
    thing = Thing()
    thing.name = f"name {n}"  # type: ignore[attr-defined]
    return thing


@pytest.mark.parametrize("name", HERDS)
def test_one_warning(name: str) -> None:
    program, brought, expression, word = HERDS[name]
    compiled = capture(program, "eager")
    x = torch.ones(2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for n in range(25):
            given = brought(n)
            assert torch.equal(compiled(x, given), program(x, given))
    [warning] = [str(each.message) for each in told if "FE090" in str(each.message)]
    assert f"last reason: {expression}" in warning
    assert word in warning.split("hint:")[1]
    assert len(compiled.entries) <= 8
