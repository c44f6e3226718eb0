"""Sources are paths: they print as the user would write them, and equal ones are one key."""

import pytest

from opmill_guards import GuardSet, instance_dict, reference
from opmill_guards.guard import Absent, Equals
from opmill_guards.source import Attr, InstanceDict, Item, Local, Pinned, TypeOf


class Holder:
    def __init__(self):
        self.items = [{"k": (1, 2)}]


PATHS = [
    (Attr(Local("h"), "items"), "h.items"),
    (Item(Attr(Local("h"), "items"), 0), "h.items[0]"),
    (Item(Item(Item(Attr(Local("h"), "items"), 0), "k"), 1), "h.items[0]['k'][1]"),
    (Item(InstanceDict(Local("h")), "items"), "h.__dict__['items']"),
    (TypeOf(Local("h")), "type(h)"),
]


@pytest.mark.parametrize(("source", "text"), PATHS, ids=[text for _, text in PATHS])
def test_they_read_what_their_text_reads(source, text):
    holder = Holder()
    assert str(source) == text
    assert reference.read(source, {"h": holder}) == eval(text, {"h": holder})


@pytest.mark.parametrize(("source", "text"), PATHS, ids=[text for _, text in PATHS])
def test_the_root_is_the_local(source, text):
    assert source.root == Local("h")


def test_equal_paths_are_one_key():
    one, other = (Item(Attr(Local("h"), "a"), 0) for _ in range(2))
    assert one == other and hash(one) == hash(other) and len({one, other}) == 1
    assert one != Item(Attr(Local("h"), "a"), 1) and one != Item(Attr(Local("g"), "a"), 0)


def test_pinned_objects_are_compared_by_identity():
    value = [1]
    assert Pinned(value, "a") == Pinned(value, "b") != Pinned([1], "a")


def test_what_leads_nowhere_is_unreadable():
    with pytest.raises(reference.Unreadable):
        reference.read(Item(Attr(Local("h"), "items"), 7), {"h": Holder()})


class Hiding:
    def __init__(self) -> None:
        self.x = 1

    @property
    def __dict__(self) -> dict[str, int]:  # type: ignore[override]
        return {"shown": 2}


class HidingItems(dict):
    __dict__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(item=3)
        self.x = 1


@pytest.mark.parametrize("kind", [Hiding, HidingItems])
def test_the_dictionary_of_an_object_whose_class_shows_something_else(kind: type) -> None:
    it = kind()
    assert instance_dict(it) == {"x": 1}
    for source in (InstanceDict(Local("it")), Item(InstanceDict(Local("it")), "x")):
        assert reference.read(source, {"it": it}) == (1 if type(source) is Item else {"x": 1})
    guards = GuardSet([Equals(Item(InstanceDict(Local("it")), "x"), 1), Absent(InstanceDict(Local("it")), "shown")])
    assert guards.check({"it": it}) and guards.native(("it",)).check(it)
    it.x = 2
    assert not guards.check({"it": it}) and not guards.native(("it",)).check(it)


def test_what_has_no_dictionary_has_none() -> None:
    with pytest.raises(AttributeError):
        instance_dict(3)
