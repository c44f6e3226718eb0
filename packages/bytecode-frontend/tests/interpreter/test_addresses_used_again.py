"""An object that dies, and another one at its address: what was captured for the first is never run for the second."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


class Thing:
    """Small: the allocator gives its address to the next one."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: int) -> None:
        self.value = value


MOST = 300_000


class World:
    """What a program knows of objects."""

    def __init__(self) -> None:
        self.thing: Any = None
        self.members: set[Any] = set()
        self.table: dict[Any, int] = {}
        self.order: collections.OrderedDict[Any, int] = collections.OrderedDict()
        self.number = 0
        self.fixed: Any = frozenset()
        self.shown: Any = types.MappingProxyType({})

    def meet(self, o: Any) -> None:
        self.thing, self.number = o, id(o)
        self.members, self.table, self.order = {o}, {o: 5}, collections.OrderedDict({1: 2, o: 6})
        self.fixed, self.shown = frozenset([o]), types.MappingProxyType({o: 7})

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]


Ask = Callable[[World, Any], Any]
QUESTIONS: dict[str, Ask] = {
    "is": lambda w, o: 1 if w.thing is o else 2,
    "id": lambda w, o: 1 if id(o) == w.number else 2,
    "set": lambda w, o: 1 if o in w.members else 2,
    "frozenset": lambda w, o: 1 if o in w.fixed else 2,
    "dict": lambda w, o: w.table.get(o, 2),
    "ordered": lambda w, o: w.order.get(o, 2),
    "proxy": lambda w, o: w.shown.get(o, 2),
    "own table": lambda w, o: {o: 3}.get(w.thing, 4),
    "keys": lambda w, o: sum(k.value for k in w.table if k is not o) + o.value,
    "value": lambda w, o: o.value + len({o}),
}
WORLDS: dict[str, Callable[[World, Ask], Callable[..., Any]]] = {
    "argument": lambda w, ask: lambda o, x: x + ask(w, o),
    "attribute of a global": lambda w, ask: eval("lambda o, x: x + ask(WORLD, o)", {"WORLD": w, "ask": ask}),
}


def made_at(address: int, value: int) -> Thing:
    """One at that address, if the allocator gives it away: it fills what is free before it takes more."""
    made = [Thing(value)]
    while id(made[-1]) != address and address and len(made) < MOST:
        made.append(Thing(value))
    return made[-1]


def run(fn: Callable[..., Any], world: World) -> list[Any]:
    """What comes of an object that is known, of others at its address that are not, and are; and how often there was another."""
    found, again, address = [], 0, 0
    for turn in range(6):
        o = made_at(address, 10 + turn)
        again += id(o) == address
        address = id(o)
        if turn % 2 == 0:
            world.meet(o)
        found.append(float(fn(o, torch.zeros(()))))
        world.forget()
        del o
    return [found, again]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", WORLDS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_each_call_is_about_its_own_object(question: str, place: str) -> None:
    world = World()
    fn = WORLDS[place](world, QUESTIONS[question])
    found, again = run(capture(fn, "eager"), world)
    assert found == run(fn, world)[0]
    assert again >= 2, "the allocator gives no address again: the test tells nothing"


class Named:
    """Equal by name, whatever else it holds."""

    def __init__(self, name: str, extra: int) -> None:
        self.name, self.extra = name, extra

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


TABLES: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "dict": dict,
    "ordered": collections.OrderedDict,
    "own": type("Own", (dict,), {}),
    "default": lambda items: collections.defaultdict(int, items),
    "proxy": types.MappingProxyType,
}
READS: dict[str, Callable[[Any, Any], Any]] = {
    "keys": lambda d, x: (x + sum(k.extra for k in d if type(k) is Named), list(d)[1]),
    "items": lambda d, x: (x + sum(v for _, v in d.items()), list(d.items())[1][0]),
    "item": lambda d, x: (x + d[Named("a", 0)], d.get("plain")),
    "length": lambda d, x: (x + len(d), next(iter(d))),
    "in": lambda d, x: (x + (Named("a", 0) in d) + 2 * (Named("c", 0) in d), None),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("read", READS)
def test_keys_that_are_equal_are_not_one(read: str, table: str) -> None:
    counted: list[Any] = []
    fn = capture(lambda d, x: READS[read](d, x), "eager", on_translation=counted.append)
    for extra, items in enumerate([(1, 2), (1, 2), (3, 4), (1, 2)]):
        a, b = Named("a", 10 if extra < 2 else extra), Named("b", 20)
        held = TABLES[table]({"plain": 0, a: items[0], b: items[1]})
        found, wanted = fn(held, torch.zeros(())), READS[read](held, torch.zeros(()))
        assert float(found[0]) == float(wanted[0]) and found[1] is wanted[1]
    assert len(counted) <= 3, "keys that are made anew are others by what they hold alone"
