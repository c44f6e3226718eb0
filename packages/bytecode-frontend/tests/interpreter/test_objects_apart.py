"""Objects that were different ones at the capture and are one at a later call; lists that get longer with each call."""

from __future__ import annotations

import collections
import copy
from typing import Any

import pytest
import torch
from alike import same

from opmill_bytecode_frontend import capture


class Thing:
    pass


class Items(list):
    pass


def insert(x: Any, a: Any, b: Any) -> Any:
    a.insert(0, 5)
    b.insert(0, 6)
    return x + 1


def store(x: Any, a: Any, b: Any) -> Any:
    a["k"] = 1
    b["k"] = 2
    return x + a["k"]


def add(x: Any, a: Any, b: Any) -> Any:
    a.add(1)
    b.clear()
    return x + len(a)


def assign(x: Any, a: Any, b: Any) -> Any:
    a.k = 1
    b.k = 2
    return x + a.k


def rotate(x: Any, a: Any, b: Any) -> Any:
    a.appendleft(1)
    b.appendleft(2)
    return x + a[0]


def compare(x: Any, a: Any, b: Any) -> Any:
    return x + 1 if a is b else x


CASES = [
    (insert, list),
    (insert, Items),
    (store, dict),
    (store, collections.OrderedDict),
    (add, set),
    (assign, Thing),
    (rotate, collections.deque),
    (compare, list),
    (compare, Thing),
]


@pytest.mark.parametrize(("fn", "make"), CASES, ids=lambda each: each.__name__)
def test_one_object_for_two(fn: Any, make: Any) -> None:
    compiled = capture(fn, "eager")
    x = torch.ones(2)
    found = []
    for how in (fn, compiled):
        one, other, both = make(), make(), make()
        first = how(x, one, other).tolist()
        found.append((first, how(x, both, both).tolist(), [vars(each) if make is Thing else each for each in (one, other, both)]))
    assert found[0] == found[1]


# --- lists that grow --------------------------------------------------------------------------------------------------------------


def cached(x: Any, cache: Any) -> Any:
    if cache:
        x = x + cache[-1]
    if not cache:
        x = x * 2
    cache.append(x)
    cache += [3, x - 1]
    return x, cache[-2], cache[-1]


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.states: list[Any] = []
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        if self.states:
            y = y + self.states[-1]
        self.states.append(y.detach())
        return y


def test_a_cache_that_grows_is_captured_twice() -> None:
    translations: list[Any] = []
    compiled = capture(cached, "eager", fullgraph=True, on_translation=translations.append)
    mine: list[Any] = []
    theirs: list[Any] = []
    for i in range(20):
        x = torch.tensor([1.0, float(i)])
        assert same(compiled(x, mine), cached(x, theirs)) and same(mine, theirs)
    assert len(translations) == 2  # empty, and not


def test_a_module_that_keeps_its_states_is_captured_twice() -> None:
    def step(module: Any, x: Any) -> Any:
        return module(x)

    translations: list[Any] = []
    compiled = capture(step, "eager", on_translation=translations.append)
    theirs = Recurrent()
    mine = copy.deepcopy(theirs)
    for _ in range(20):
        assert same(compiled(mine, torch.ones(2)), theirs(torch.ones(2))) and same(mine.states, theirs.states)
    assert len(translations) == 2


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, l: (l.append(x), l[-1], l[0], len(l))[1:], lambda x, l: (l.append(4), l.pop(), l.pop(), l), lambda x, l: (l[-2:], l.append(x), sum(l[:2])),
        lambda x, l: (l[-2], l.extend(l), l[1], [*l]), lambda x, l: (l.append(l[-1]), l[-1] is l[-2], l.index(1)), lambda x, l: (l.append(x), l.reverse(), l[-3]),
        lambda x, l: (l[-3], l), lambda x, l: (l[-4],), lambda x, l: (l.append(7), l[-4], l.insert(0, l[-1]), l), lambda x, l: (l.append(1), l.clear(), l.append(2), l),
    ],
)  # fmt: skip
def test_whatever_is_done_with_a_list(fn: Any) -> None:
    def outcome(how: Any, l: list[Any]) -> Any:
        try:
            return str(how(torch.ones(2), l)), str(l)
        except Exception as exc:
            return type(exc).__name__, str(exc), str(l)

    compiled = capture(lambda x, l: (fn(x, l), x + 1), "eager")
    for start in ([1, 2, 3], [1, 2, 3], [1, 5, 3], [1, 2, 3, 4], [9, 2, 3], [1, 2]):
        assert outcome(compiled, list(start)) == outcome(lambda x, l: (fn(x, l), x + 1), list(start))
