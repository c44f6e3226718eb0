"""Weak references of guards: equal exactly if both are one object that lives, whatever its address was used for since."""

from __future__ import annotations

import enum
import functools

import pytest

from opmill_guards.weak import DEAD, WeakObject, kind_of_held, living, may_die, weak


class Thing:
    """Whoever asks it whether it is equal hears yes."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("the object was asked")

    def __hash__(self) -> int:
        raise AssertionError("the object was asked")


class Color(enum.Enum):
    RED = 1


def test_one_object_is_itself() -> None:
    thing, other = Thing(), Thing()
    assert WeakObject(thing) == WeakObject(thing) == thing
    assert hash(WeakObject(thing)) == hash(WeakObject(thing))
    assert WeakObject(thing) != WeakObject(other)
    assert living(WeakObject(thing)) is thing and living(thing) is thing


def test_what_has_died_is_equal_to_nothing_but_itself() -> None:
    one, two = WeakObject(Thing()), WeakObject(Thing())
    assert living(one) is living(two) is DEAD
    assert one != two and one == one
    assert all(one != other for other in (None, DEAD, 0, Thing()))
    assert kind_of_held(one) is Thing


def made_by_a_call() -> object:
    def function() -> None: ...

    return function


@pytest.mark.parametrize("obj", [Thing(), {1}, made_by_a_call(), functools.partial(int)], ids=lambda obj: type(obj).__name__)
def test_what_a_program_lets_go_of(obj: object) -> None:
    assert may_die(obj) and type(weak(obj)) is WeakObject


@pytest.mark.parametrize(
    "obj",
    [1, "x", None, (), [], {}, Thing, enum, len, made_by_a_call, Color.RED, made_by_a_call.__code__],
    ids=lambda obj: type(obj).__name__,
)
def test_what_lives_on_or_cannot_be_referred_to(obj: object) -> None:
    assert not may_die(obj) and weak(obj) is obj


class Asked:
    def __getattribute__(self, name: str) -> object:
        raise AssertionError("the object was asked")


def test_the_object_is_not_asked_what_it_is() -> None:
    asked = Asked()
    assert may_die(asked) and living(weak(asked)) is asked
