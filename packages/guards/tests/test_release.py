"""Guards that are released keep nothing of the program alive, and fit no call any more once it is gone: not even where another object has
the address."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from types import MappingProxyType
from typing import Any, Callable

import pytest

from opmill_guards import GuardSet
from opmill_guards.guard import (
    Absent,
    AllDistinct,
    DictKeys,
    Equals,
    Is,
    Length,
    ModuleTree,
    Predicate,
    Remembered,
    SameObject,
    SizeRelation,
    TypeIs,
)
from opmill_guards.release import release
from opmill_guards.source import Attr, CellContents, DictKeyAt, InstanceDict, Item, Local, Pinned, Referent


class Thing:
    def __init__(self, value: int = 1) -> None:
        self.value = value


class Equal(Thing):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 7


C = Local("c")
Case = Callable[[Any], tuple[Any, list[Any]]]


def mortal(o: Any) -> Pinned:
    return Pinned(o, "o", mortal=True)


#: What holds an object, and guards about it.
CASES: dict[str, Case] = {
    "is": lambda o: (o, [Is(C, o)]),
    "attribute": lambda o: ([o], [Is(Item(C, 0), o), Equals(Item(InstanceDict(mortal(o)), "value"), 1)]),
    "type": lambda o: ([o], [TypeIs(mortal(o), type(o)), Absent(InstanceDict(mortal(o)), "other")]),
    "key": lambda o: ({o: 1}, [DictKeys(C, (o,))]),
    "ordered key": lambda o: (OrderedDict({1: 2, o: 1}), [DictKeys(C, (1, o))]),
    "shown key": lambda o: (MappingProxyType({o: 1}), [DictKeys(C, (o,)), Length(C, 1), Is(DictKeyAt(C, 0), o)]),
    "item of a key": lambda o: ({o: 1, 2: 3}, [Equals(Item(C, o), 1), Equals(Item(C, 2), 3)]),
    "tuple": lambda o: (held := (1, (o, None), o), [Is(C, held)]),
    "same": lambda o: ([o], [SameObject(Item(C, 0), mortal(o))]),
    "distinct": lambda o: ([o, 1], [AllDistinct((mortal(o), Item(C, 1)))]),
    "relation": lambda o: ([o], [SizeRelation("s0 == 1", (Attr(mortal(o), "value"),))]),
    "predicate": lambda o: ([o], [Predicate(mortal(o), lambda found: found.value == 1, "is one")]),
    "remembered": lambda o: ([o], [Remembered(mortal(o), lambda found: found.value == 1, "is one")]),
    "cell": lambda o: (function_of(o), [Is(CellContents(Item(Attr(C, "__closure__"), 0)), o)]),
    "referent": lambda o: ([o], [Is(Referent(Pinned(weakref.ref(o), "reference")), o)]),
    "tree": lambda o: ([o], [ModuleTree((), (Is(Item(C, 0), o), DictKeys(InstanceDict(mortal(o)), ("value",))))]),
}  # fmt: skip


def function_of(o: object) -> Callable[[], object]:
    return lambda: o


@pytest.mark.parametrize("cls", [Thing, Equal])
@pytest.mark.parametrize("name", CASES)
def test_the_object_dies_with_its_holder(name: str, cls: type[Thing]) -> None:
    o = cls()
    holder, guards = CASES[name](o)
    plain = GuardSet(guards)
    assert plain.native("c").check(holder) and plain.check({"c": holder})
    del plain
    kept = GuardSet(release(guards)[0])
    tree = kept.native("c")
    assert tree.check(holder) and kept.check({"c": holder}) and kept.explain({"c": holder}) is None and not kept.is_over()
    told = weakref.ref(o)
    del o, holder, guards
    assert told() is None
    other = CASES[name](cls())[0]
    assert not tree.check(other) and not kept.check({"c": other})
    assert kept.is_over() and str(kept) and str(kept.explain({"c": other}))


@pytest.mark.parametrize("name", ["is", "key", "ordered key", "tuple", "cell", "tree"])
def test_an_address_that_is_used_again_is_another_object(name: str) -> None:
    before = {}
    crowd: Any = [Thing() for _ in range(100)]  # some addresses go to what objects consist of
    for o in crowd:
        holder, guards = CASES[name](o)
        kept = GuardSet(release(guards)[0])
        before[id(o)] = kept, kept.native("c")
        assert before[id(o)][1].check(holder)
    del crowd, o, holder, guards
    others = [Thing() for _ in range(100_000)]  # what is free is filled first
    again = [each for each in others if id(each) in before]
    assert again, "the allocator gives no address again: the test tells nothing"
    for each in again:
        kept, tree = before[id(each)]
        holder = CASES[name](each)[0]
        assert not tree.check(holder) and not kept.check({"c": holder})


def test_None_is_not_taken_for_an_object_that_has_died() -> None:
    kept = GuardSet(release([Is(C, Thing())])[0])
    assert not kept.native("c").check(None) and not kept.check({"c": None})


def test_what_may_not_die_stays_as_it_is() -> None:
    pinned = Pinned({}, "globals")
    guards = [Is(C, len), Is(Item(pinned, "a"), None), Equals(Item(C, 0), 1), TypeIs(pinned, dict), Is(C, (1, "x")), Is(C, Thing.__mro__)]
    kept, loads = release(guards, [Item(pinned, "a")])
    assert all(one is other for one, other in zip(kept, guards, strict=True))
    assert loads == [Item(pinned, "a")] and loads[0].base is pinned


def test_paths_are_equal_to_what_they_were() -> None:
    o = Thing()
    source = Item(InstanceDict(mortal(o)), "value")
    (kept,), (load,) = release([Equals(source, 1)], [source])
    assert kept.source == source == load and hash(kept.source) == hash(source) and str(load) == str(source)
    assert kept.source.root == Pinned(o, "another label")
    del o, source
    assert kept.source == load and kept.source.root != Pinned(Thing(), "o")
