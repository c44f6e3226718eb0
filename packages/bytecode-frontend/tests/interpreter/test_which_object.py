"""Containers look for an item by identity first. Which object a number, a text or a set is may differ from call to call, whatever was there at
capture: each way to look, with each kind of item, in many orders."""

from __future__ import annotations

import collections
import operator
import random
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


class Holder:
    def __init__(self, item: Any) -> None:
        self.item = item


def matched(item: Any, kept: Sequence[Any]) -> int:
    match [item]:
        case [found] if found in kept:
            return 2
    return 3


def taken_out(item: Any, kept: Sequence[Any]) -> int:
    rest = list(kept)
    try:
        rest.remove(item)
    except ValueError:
        return 0
    return len(rest)


def place(item: Any, kept: Sequence[Any]) -> int:
    return kept.index(item) if item in kept else -1


def found_by_key(item: Any, kept: Sequence[Any]) -> int:
    return {each: n for n, each in enumerate(kept)}.get(item, 7) if isinstance(item, Hashable) else 9


#: A way to ask whether, where or how often an item is among others: a number.
WAYS: dict[str, Callable[[Any, Any], int]] = {
    "in a tuple": lambda item, kept: item in kept,
    "not in a list": lambda item, kept: item not in [*kept],
    "operator.contains": lambda item, kept: operator.contains(kept, item),
    "operator.countOf": lambda item, kept: operator.countOf(kept, item),
    "in an iterator": lambda item, kept: item in iter(kept),
    "in a generator": lambda item, kept: item in (each for each in kept),
    "in a deque": lambda item, kept: item in collections.deque(kept),
    "in the values of a dict": lambda item, kept: item in dict(enumerate(kept)).values(),
    "in the items of a dict": lambda item, kept: (0, item) in dict(enumerate(kept)).items(),
    "count": lambda item, kept: kept.count(item),
    "index": place,
    "remove": taken_out,
    "equal tuples": lambda item, kept: (item, 1) == (kept[0], 1),
    "unequal lists": lambda item, kept: [item] != [kept[0]],
    "tuples in order": lambda item, kept: (item, 1) < (kept[0], 2) if not isinstance(item, complex) else 5,
    "equal dicts": lambda item, kept: {"k": item} == {"k": kept[0]},
    "in a tuple of tuples": lambda item, kept: (item, 0) in [(each, 0) for each in kept],
    "a pattern": matched,
    "a key": found_by_key,
    "in a set": lambda item, kept: item in set(kept) if isinstance(item, Hashable) else 9,
    "is": lambda item, kept: sum(item is each for each in kept),
    "made of itself": lambda item, kept: type(item)(item) in kept if isinstance(item, (str, bytes, int, float, complex)) else 4,
}


def by_argument(x: torch.Tensor, item: Any, kept: Any, way: Any) -> torch.Tensor:
    return x * 10 + way(item, kept)


def by_attribute(x: torch.Tensor, item: Any, kept: Any, way: Any) -> torch.Tensor:
    return x * 10 + way(item.item, kept)


def by_stack(x: torch.Tensor, item: Any, kept: Any, way: Any) -> torch.Tensor:
    for each in zip([item], [1]):
        given_back(x)
        x = x + way(each[0], kept)
    return x


@torch.compiler.disable
def given_back(x: Any) -> Any:
    return x


#: Many items of one kind, all of them made before: each is found as the very object that is among the kept ones.
KINDS: dict[str, list[Any]] = {
    "short texts": list("+*-abcdefghi"),
    "bytes": [bytes([65 + n]) * 3 for n in range(12)],
    "ints": [1000 + n for n in range(12)],
    "floats": [n + 0.5 for n in range(12)],
    "sets": [frozenset([n]) for n in range(12)],
    "NaNs": [float("nan") for _ in range(12)],
    "NaNs and numbers": [float(["nan", "0.5", "inf"][n % 3]) for n in range(12)],
    "equal texts": ["".join(["te", "xt", str(n % 2)]) for n in range(12)],
    "equal ints": [int(f"{1000 + n % 2}") for n in range(12)],
    "equal floats": [float(f"{n % 2}.5") for n in range(12)],
}


def differences(program: Any, way: Any, kept: Any, items: Sequence[Any], hold: Callable[[Any], Any]) -> list[str]:
    """The calls whose result is not the plain program's."""
    compiled, x, wrong = capture(program, "eager"), torch.ones(2), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n, item in enumerate(items):
            expected, outcome = (tried(each, x, hold(item), kept, way) for each in (program, compiled))
            if expected != outcome:
                wrong.append(f"call {n} with {item!r:.20}: {outcome} for {expected}")
    return wrong


def tried(program: Any, *args: Any) -> object:
    try:
        return program(*args).tolist()
    except TypeError as exc:
        return str(exc)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_items_that_are_others_at_each_call(way: str, kind: str) -> None:
    """The calls go on behind the point where the frontend has learnt that the item changes; the one that comes there is among the kept."""
    chosen = random.Random(f"{way} {kind}")
    items = KINDS[kind]
    for program, hold in ((by_argument, lambda item: item), (by_attribute, Holder), (by_stack, lambda item: item)):
        kept = tuple(chosen.sample(items, 6))
        others = [item for item in items if not any(item is each for each in kept)]
        calls = [*others, *kept] if program is by_stack else [item for pair in zip(others, kept) for item in pair]
        calls = calls[: chosen.randrange(4, 9)] + [kept[0], others[0], kept[1], others[1]]
        assert differences(program, WAYS[way], kept, calls, hold) == []
