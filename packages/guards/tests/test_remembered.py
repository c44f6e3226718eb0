"""What a Python function says of an object: asked again when anything that it can have read has changed, and only then."""

from __future__ import annotations

import enum
import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
from opmill_guards import GuardSet  # noqa: E402
from opmill_guards.guard import Remembered  # noqa: E402
from opmill_guards.source import Local  # noqa: E402


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Inner:
    number: int = 1
    numbers: list[int] = field(default_factory=lambda: [1, 2])


class Slotted:
    __slots__ = ("here", "later")

    def __init__(self) -> None:
        self.here = [1]


class Thing:
    names = ["number", "sizes"]  # noqa: RUF012

    def __init__(self) -> None:
        self.number, self.sizes, self.inner = 3, [4, 5], Inner()
        self.table, self.pair, self.kind = {"a": [1], "b": 2}, Pair([1], 2), Kind.ONE
        self.slotted, self.tensor, self.dtype = Slotted(), torch.zeros(2), torch.float32


class Other(Thing):
    pass


def shape_of(thing: Any) -> str:
    """All that there is in a thing, as text, and its class."""
    if isinstance(thing, torch.Tensor):
        return "tensor"
    if isinstance(thing, dict):
        return str({key: shape_of(value) for key, value in thing.items()})
    if isinstance(thing, (list, tuple)):
        return str([shape_of(value) for value in thing])
    slots = {name: getattr(thing, name, None) for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())}
    inside = {**getattr(thing, "__dict__", {}), **slots}
    plain = isinstance(thing, (int, str, type, enum.Enum, torch.dtype)) or thing is None
    return repr(thing) if plain else f"{type(thing).__name__} {shape_of(inside)}"


CHANGES: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda t: setattr(t, "number", 4),
    "attribute of the same value": lambda t: setattr(t, "number", True),
    "new attribute": lambda t: setattr(t, "more", 1),
    "attribute gone": lambda t: delattr(t, "number"),
    "item of a list": lambda t: t.sizes.__setitem__(1, 7),
    "longer list": lambda t: t.sizes.extend(range(100)),
    "shorter list": lambda t: t.sizes.pop(),
    "turned list": lambda t: t.sizes.reverse(),
    "object inside": lambda t: setattr(t.inner, "number", 2),
    "list of an object inside": lambda t: t.inner.numbers.append(1),
    "another object inside": lambda t: setattr(t, "inner", SimpleNamespace(number=1)),
    "class of an object inside": lambda t: setattr(t.inner, "__class__", type("Elsewhere", (Inner,), {})),
    "dictionary": lambda t: t.table.update(b=3),
    "list in a dictionary": lambda t: t.table["a"].append(2),
    "list in a tuple": lambda t: t.pair.left.append(2),
    "slot": lambda t: setattr(t.slotted, "here", [2]),
    "list in a slot": lambda t: t.slotted.here.append(2),
    "slot that was empty": lambda t: setattr(t.slotted, "later", 2),
    "member of an enumeration": lambda t: setattr(t, "kind", Kind.TWO),
    "class": lambda t: setattr(t, "__class__", Other),
    "instance dictionary": lambda t: setattr(t, "__dict__", {"number": 3}),
    "tensor gone": lambda t: setattr(t, "tensor", None),
}


def guarded(thing: Any, reads: tuple[Any, ...] = (), says: Callable[[Any], Any] = shape_of) -> tuple[Any, list[Any]]:
    """The native tree of a guard that the thing says what it says now, and a list that grows by each time that it is asked."""
    expected, asked = says(thing), []

    def function(now: Any) -> bool:
        asked.append(now)
        return bool(says(now) == expected)

    settled = (torch.dtype, enum.Enum)
    return GuardSet([Remembered(Local("x"), function, "says the same", ("tensor",), settled, reads)]).native(("x",)), asked


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change: str) -> None:
    thing = Thing()
    tree, asked = guarded(thing)
    assert all(tree.check(thing) for _ in range(5))
    assert len(asked) == 1
    CHANGES[change](thing)
    assert not tree.check(thing)


def test_of_many_objects_each_is_asked_once() -> None:
    things = [Thing() for _ in range(40)]
    tree, asked = guarded(things[0])
    assert all(tree.check(thing) for _ in range(3) for thing in things)
    assert len(asked) == 40
    things[7].sizes.append(1)
    assert [tree.check(thing) for thing in things] == [k != 7 for k in range(40)]


def test_an_object_that_lies_where_another_was() -> None:
    thing = Thing()
    tree, _ = guarded(thing)
    for number in range(200):
        other = Thing()
        other.number = number
        assert tree.check(other) is (number == 3)
        assert tree.check(other) is (number == 3)
        del other
    gc.collect()
    assert tree.check(thing)


def test_the_tensor_itself_may_be_another_one() -> None:
    thing = Thing()
    tree, asked = guarded(thing)
    assert tree.check(thing)
    thing.tensor = torch.ones(3)
    assert tree.check(thing) and len(asked) == 2


def test_what_the_class_says_is_read_again_where_it_has_changed() -> None:
    names = ["number"]
    thing = type("Named", (Thing,), {"names": names})()
    tree, _ = guarded(thing, (names,), lambda t: [getattr(t, name) for name in type(t).names])
    assert tree.check(thing) and tree.check(thing)
    names.append("sizes")
    assert not tree.check(thing)
    names.pop()
    assert tree.check(thing)
    type(thing).names = []
    assert not tree.check(thing)


@pytest.mark.parametrize(
    "unseen", [bytearray(b"a"), {1, 2}, iter([1]), lambda: 1, torch.zeros(1), [torch.zeros(1)]], ids=lambda u: type(u).__name__
)
def test_asked_each_time_where_something_may_change_unseen(unseen: Any) -> None:
    thing = Thing()
    thing.unseen = unseen
    tree, asked = guarded(thing, (), lambda t: t.number)
    assert all(tree.check(thing) for _ in range(9))
    assert len(asked) == 9


def test_an_object_that_holds_itself_ends() -> None:
    thing = Thing()
    thing.inner = thing
    tree, asked = guarded(thing, (), lambda t: t.number)
    assert all(tree.check(thing) for _ in range(3)) and len(asked) == 3


def test_a_function_that_fails_is_no_yes() -> None:
    thing = Thing()
    del thing.number
    guard = Remembered(Local("x"), lambda t: t.number, "number")
    assert not GuardSet([guard]).native(("x",)).check(thing)


def test_objects_are_let_go() -> None:
    thing = Thing()
    tree = GuardSet([Remembered(Local("x"), lambda t: t.number == 3, "number", ("tensor",), (torch.dtype,))]).native(("x",))
    assert tree.check(thing) and tree.check(thing)
    gone, inside = weakref.ref(thing), weakref.ref(thing.inner)
    del thing
    gc.collect()
    assert gone() is None and inside() is None and tree.check(Thing())
