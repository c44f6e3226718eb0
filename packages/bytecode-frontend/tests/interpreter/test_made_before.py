"""Objects of the standard library made before the call that captured code calls or looks into: getters, generic aliases, weak containers,
decimals; and iterators without an end that leave."""

from __future__ import annotations

import decimal
import itertools
import operator
import weakref
from typing import Generic, TypeVar

import pytest
import torch
from differing import differs, told

from opmill_bytecode_frontend import capture

T = TypeVar("T")


class Held:
    def __init__(self, value):
        self.value = value

    @property
    def asked(self):
        return told(self.value)

    def scaled(self, x, by=1):
        return x * by


class Box(Generic[T]):
    def __init__(self, value):
        self.value = value


class Layer(torch.nn.Module, Generic[T]):
    def forward(self, x):
        return x * 2


class Refused:
    def __hash__(self):
        return len(told("hash"))


HELD, OTHER, REFUSED = Held(3), Held(4), Refused()
HELD.inner = OTHER
LAYER = Layer[int]()
VALUES, DEEP, SECOND = operator.attrgetter("value", "asked"), operator.attrgetter("inner.value"), operator.itemgetter(1)
BOTH, SCALED = operator.itemgetter(0, "a"), operator.methodcaller("scaled", torch.ones(3), by=2)
SEEN, BY_KEY, REFUSING = weakref.WeakSet([HELD]), weakref.WeakKeyDictionary({HELD: 5}), weakref.WeakSet([REFUSED])
NAMED = weakref.WeakValueDictionary(held=HELD)


def unfinished(x):
    count, steps, same = itertools.count(3), itertools.count(0.5, 0.25), itertools.repeat(5, 3)
    next(count), next(steps), next(same)
    return count, steps, same, itertools.repeat(x)


def around_a_break(x):
    count, _, same, endless = unfinished(x)
    total = x.sum().tolist()
    return next(count), list(same), repr(count), next(endless) + total, repr(itertools.repeat(2))


PROGRAMS = {
    "getters": lambda x: (
        VALUES(HELD),
        DEEP(HELD),
        SECOND([1, x]) + 1,
        BOTH({0: 1, "a": x})[1] + 1,
        SCALED(HELD),
        sorted([OTHER, HELD], key=operator.attrgetter("value"))[0].value,
    ),
    "generic classes": lambda x: (Box[int](x).value + 1, Box[str](1).__orig_class__ == Box[str], LAYER(x)),
    "weak containers": lambda x: (
        HELD in SEEN,
        OTHER in SEEN,
        HELD in BY_KEY,
        BY_KEY[HELD],
        BY_KEY.get(OTHER, 7),
        NAMED["held"].value,
        "other" in NAMED,
        x + 1,
    ),
    "weak references": lambda x: (
        weakref.ref(HELD) == weakref.ref(HELD),
        weakref.ref(HELD) == weakref.ref(OTHER),
        {weakref.ref(HELD): 1}[weakref.ref(HELD)],
        x + 1,
    ),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_made_before(program):
    differs(program)


def test_iterators_without_an_end():
    differs(around_a_break, whole=False)
    results = capture(unfinished, "eager", fullgraph=True)(torch.ones(1))
    assert list(map(next, results)) == list(map(next, unfinished(torch.ones(1))))


def test_hashes_of_the_program_in_weak_containers():
    differs(lambda x: (REFUSED in REFUSING, x + 1), whole=False)


def test_decimals_follow_their_context():
    third = capture(lambda x: (decimal.Decimal(1) / 3, x + 1), "eager", fullgraph=True)
    for digits in (3, 5, 5):
        with decimal.localcontext() as context:
            context.prec = digits
            assert third(torch.ones(1))[0] == decimal.Decimal(1) / 3


def test_methods_of_objects_of_c():
    differs(lambda x: (decimal.Decimal("1.25").quantize(decimal.Decimal("0.1")), x + 1), whole=False)
