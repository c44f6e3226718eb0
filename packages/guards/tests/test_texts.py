"""What guards, sources and failures say of a program's objects runs none of its code."""

import enum
import functools

import pytest

from opmill_guards import GuardError, GuardSet
from opmill_guards.guard import Absent, DictKeys, Equals, Is, Length, ModuleFacts, ModuleTree, TypeIs
from opmill_guards.source import Attr, Item, Local
from opmill_guards.texts import short

RUN = []


class Loud(type):
    def __repr__(cls):
        RUN.append("the class's")
        return "loud"

    __str__ = __repr__


class Thing(metaclass=Loud):
    def __repr__(self):
        RUN.append("the object's")
        return "thing"

    __str__ = __repr__

    def method(self):
        pass


class Text(str):
    __repr__ = __str__ = Thing.__repr__


class Color(enum.Enum):
    RED = 1

    def __repr__(self):
        RUN.append("the member's")
        return "red"

    __str__ = __repr__


x, thing = Local("x"), Thing()
VALUES = [thing, Thing, Text("t"), Color.RED, thing.method, functools.partial(Thing.method, thing)]
VALUES += [
    form for each in VALUES for form in ([each], (each, each), {"key": each}, {each: 1} if each is not VALUES[0] else {}, {1: [(each,)]})
]


def is_key(value):
    try:
        return hash(value) is not None
    except TypeError:
        return False


def said_of(value):
    """What is said of a value: by guards on it, by a source that it is a part of, and where a guard fails or cannot be."""
    guards = [Is(x, value), Equals(x, value), DictKeys(x, (value,))]
    if is_key(value):
        guards += [Is(Attr(Item(Item(x, "a"), value), "b"), value), Length(Item(x, value), 2), Absent(x, value)]
    for guard in guards:
        try:
            held = GuardSet([guard])
        except GuardError as error:
            yield str(error)
        else:
            yield str(held)
            yield str(held.explain({"x": {}}))
    for guard in (Is(x, 1), Equals(x, 1), TypeIs(x, int), Absent(x, "a"), DictKeys(x, (1,))):
        yield str(GuardSet([guard]).explain({"x": value}))


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_no_code_of_the_program_runs(value):
    RUN.clear()
    assert all(said_of(value)) and not RUN


def test_no_class_of_a_module_is_asked():
    RUN.clear()
    text = str(GuardSet([ModuleTree((ModuleFacts(x, Thing), ModuleFacts(Attr(x, "y"), Thing)), ())]))
    assert "ModuleFacts(x.y, type=Thing" in text and not RUN


def test_what_is_said():
    assert short({"a": [1, (2.0, None)], Color.RED: "t"}) == "{'a': [1, (2.0, None)], Color.RED: 't'}"
    assert str(Item(Item(x, "a"), 3)) == "x['a'][3]"
    assert short("a" * 300, 10) == "'aaaaaa..."
    RUN.clear()
