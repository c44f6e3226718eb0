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
    [warning] = [str(each.message) for each in told if "FE090" in str(each.message) or "FE067" in str(each.message)]
    assert f"last reason: {expression}" in warning or f" as {expression}" in warning
    assert word in warning.split("hint:")[1]
    assert len(compiled.entries) <= 8


def graphs(program: Callable[..., Any], brought: Callable[[int], Any], calls: int = 20) -> list[int]:
    """How many graphs there are after each call, all of which give what the plain program does."""
    made, found = [], []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        made.append(gm)
        return gm.forward

    compiled = capture(program, backend)
    x = torch.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(calls):
            mine, theirs = brought(n), brought(n)
            assert torch.equal(compiled(x, mine), program(x, theirs))
            if isinstance(mine, set):
                assert mine == theirs
            found.append(len(made))
    return found


LOG: list[Any] = []
LEARNT: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "a text decides": (lambda x, name: x * 2 if name == "n9" else x + 1, lambda n: f"n{n}"),
    "a text is a key": (lambda x, name: x * {f"n{k}": k for k in range(20)}[name], lambda n: f"n{n}"),
    "a text is carried": (lambda x, name: (LOG.append(name), x * 2)[1], lambda n: f"n{n}"),
    "a text in a dictionary": (lambda x, table: x * 2 if table["name"].endswith("9") else x + 1, lambda n: {"name": f"n{n}"}),
    "bytes": (lambda x, data: x * data[0], lambda n: bytes([n])),
    "a set decides": (lambda x, chosen: x * 2 if 9 in chosen else x + 1, lambda n: {n, n + 1}),
    "a set's order": (lambda x, chosen: x * sum(k * v for k, v in enumerate(chosen)), lambda n: frozenset([n * 7, n * 3, 1])),
}


@pytest.mark.parametrize("name", LEARNT)
def test_what_is_another_at_each_call_is_learnt(name: str) -> None:
    found = graphs(*LEARNT[name])
    assert found[-1] == found[-6] <= 12


def grown(x: torch.Tensor, chosen: set[int]) -> torch.Tensor:
    chosen.add(100)
    return x * len(chosen)


def test_equal_sets_are_equal() -> None:
    assert graphs(grown, lambda n: {1, 2}) == [1] * 20
    assert graphs(lambda x, chosen: x * len(chosen), lambda n: frozenset(["a", "b"])) == [1] * 20


def test_equal_sets_that_come_in_another_order_are_told_apart() -> None:
    one, other = {8, 0}, {0, 8}
    for first, second in ((one, other), (other, one)):
        found = graphs(lambda x, chosen: x * (10 * next(iter(chosen)) + 1), lambda n, a=first, b=second: {*a} if n % 2 else {*b})
        assert found[-1] <= 3
    assert graphs(lambda x, chosen: x * sum(type(k) is bool for k in chosen), lambda n: {True} if n % 2 else {1})[-1] == 2


def test_plain_objects_are_all_alike() -> None:
    assert graphs(lambda x, mark: x * 2 if mark is None else x * 3, lambda n: object()) == [1] * 20
    sentinel = object()
    program = lambda x, mark: x * 2 if mark is sentinel else x * 3
    assert graphs(program, lambda n: sentinel if n % 3 == 0 else object())[-1] <= 3


def test_a_mode_has_a_graph_for_each_of_its_names() -> None:
    assert graphs(lambda x, mode: x * 2 if mode == "m1" else x + len(mode), lambda n: f"m{n % 5}") == [1, 2, 3, 4, 5, *[5] * 15]


def test_an_argument_that_is_not_given_is_not_another_one() -> None:
    made: list[Any] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        made.append(gm)
        return gm.forward

    def program(x: torch.Tensor, **given: Any) -> torch.Tensor:
        return x * (2 if given.get("mode") == "a" else 3) + len(given.get("tags", ()))

    compiled = capture(program, backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(16):
            x = torch.ones(2, dtype=[torch.float32, torch.float64, torch.int64][n % 3])
            given = [{}, {"mode": "a"}, {}, {"tags": {"a"}}][n % 2]
            assert torch.equal(compiled(x, **given), program(x, **given))
    assert len(made) == 6
