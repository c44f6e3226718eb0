"""Graph breaks inside of functions that sorting, dictionaries and sets ask: the call runs natively as a whole, and nothing runs twice."""

from __future__ import annotations

import pytest
import torch
from differing import differs, told

WEIGHTS = torch.arange(3.0)


def broken(v):
    """A number that only running tells, and that there was a break."""
    return told(round((WEIGHTS * v).sum().tolist()))


class Item:
    def __init__(self, v):
        self.v = v

    def __hash__(self):
        return broken(self.v) % 5

    def __eq__(self, other):
        return broken(self.v) == broken(other.v)

    def __lt__(self, other):
        return broken(self.v) < broken(other.v)

    def __repr__(self):
        return f"I{self.v}"


def negative(v):
    return -broken(v)


def sorts(x):
    y, items = x + 1, [1, 3, 2]
    items.sort(key=negative)
    return items, sorted([1, 3, 2], key=negative, reverse=True), sorted([Item(3), Item(1)]), y * 2


def extremes(x):
    y = x + 1
    return min([1, 3, 2], key=negative), max(1, 3, key=negative), min([], key=negative, default=4), max(Item(1), Item(2)), y * 2


def dictionaries(x):
    y, d = x + 1, {Item(1): 1}
    d[Item(2)] = 3
    d[Item(1)] = 5
    return d, Item(2) in d, d.get(Item(3)), d.pop(Item(1)), d.setdefault(Item(4), 4), y * 2


def sets(x):
    y, s = x + 1, {Item(1), Item(2)}
    s.add(Item(1))
    s.discard(Item(2))
    return s, Item(1) in s, s | {Item(4)}, y * 2


def searches(x):
    y = x + 1
    return (
        [Item(1)] == [Item(1)],
        [Item(2), Item(1)].index(Item(1)),
        [Item(1)].count(Item(1)),
        Item(1) in (Item(1),),
        (Item(1),) < (Item(2),),
        y * 2,
    )


def maps(x):
    y = x + 1
    return (
        list(map(negative, [1, 2])),
        list(filter(broken, [0, 1])),
        sum(map(negative, [1, 2])),
        any(negative(v) > 0 for v in (1, 2)),
        y * 2,
    )


@pytest.mark.parametrize("function", [sorts, extremes, dictionaries, sets, searches, maps], ids=lambda f: f.__name__)
def test_nothing_runs_twice(function):
    differs(function, whole=False)
