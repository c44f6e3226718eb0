"""What a tree remembers of one dictionary is not what it has seen of another since, which failed or is gone."""

from __future__ import annotations

import gc
import itertools
import random

import pytest

from opmill_guards import GuardSet
from opmill_guards.guard import Absent, Equals, Length, Predicate, TypeIs
from opmill_guards.source import Attr, InstanceDict, Item, Local

x = Local("x")


class Thing:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Apart:
    """Two lists that are equal until the second is longer."""

    def __init__(self, length):
        self.items = [object() for _ in range(length)]


def outcome(guards, native, value):
    assert native.check(value) == guards.check({"x": value})
    return native.check(value)


def guards_of(dictionary, asked):
    first, second, third = (Item(dictionary, name) for name in ("first", "second", "third"))
    yield TypeIs(first, Apart)
    yield Length(Item(InstanceDict(first), "items"), 2)
    yield Predicate(first, asked, "asked") if asked else Absent(dictionary, "fourth")
    yield TypeIs(second, Apart)
    yield Length(Item(InstanceDict(second), "items"), 2)
    yield Equals(third, 3)


def things(r):
    made = Thing(first=Apart(2), second=Apart(2), third=3)
    return made, Thing(first=Apart(r.choice([1, 2])), second=Apart(r.choice([1, 2, 3])), third=r.choice([3, 4]))


@pytest.mark.parametrize("held", [InstanceDict(x), InstanceDict(Item(InstanceDict(x), "inner")), Attr(x, "table")], ids=str)
@pytest.mark.parametrize("seed", range(30))
def test_in_turns(held, seed):
    r = random.Random(seed)
    guards = GuardSet(list(guards_of(held, None)))
    native = guards.native(["x"])

    def of(thing):
        if held == InstanceDict(x):
            return thing
        return Thing(inner=thing) if isinstance(held, InstanceDict) else Thing(table=thing.__dict__)

    known = [of(each) for each in itertools.chain(*(things(r) for _ in range(3)))]
    for _ in range(60):
        step = r.randrange(5)
        if step < 3:
            outcome(guards, native, r.choice(known))
        elif step == 3:
            outcome(guards, native, of(things(r)[1]))  # is gone at once
            gc.collect(0)
        else:
            known[r.randrange(len(known))] = of(r.choice(things(r)))


@pytest.mark.parametrize("stage", range(4))
def test_a_check_that_asks_the_same_tree_of_another(stage):
    good = Thing(first=Apart(2), second=Apart(2), third=3)
    others = [Thing(first=Apart(2), second=Apart(n), third=3) for n in (1, 2, 3)]
    inside = False

    def asked(value):
        nonlocal inside
        if not inside and stage:
            inside = True
            for other in others[:stage]:
                native.check(other)
            inside = False
        return True

    guards = GuardSet(list(guards_of(InstanceDict(x), asked)))
    native = guards.native(["x"])
    for value, want in [(good, True), (others[0], False), (good, True), (others[1], True), (others[2], False), (good, True)] * 3:
        assert native.check(value) is want
