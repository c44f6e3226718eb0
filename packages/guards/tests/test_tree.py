"""Sets of guards: repetitions, order, explanation, refusals, and that an error inside a check is contained."""

from __future__ import annotations

import collections
import errno
import gc
import os
import sys
from typing import Any

import pytest

from opmill_guards import GuardError, GuardSet
from opmill_guards.guard import DictKeys, Equals, Is, Predicate, TypeIs
from opmill_guards.kinds import kinds
from opmill_guards.source import Attr, Item, Local


def test_repetitions_are_kept_once() -> None:
    x = Local("x")
    guards = [Equals(Item(x, 0), 1), Equals(Item(Local("x"), 0), 1), TypeIs(x, list), TypeIs(x, list), Is(x, None), Is(x, None)]
    assert len(GuardSet(guards)) == 3


def test_equal_but_different_constants_are_two_guards() -> None:
    x = Local("x")
    assert (
        len(GuardSet([Equals(x, 1), Equals(x, True), Equals(x, 1.0), Equals(x, 0.0), Equals(x, -0.0), Equals(x, (1,)), Equals(x, (True,))]))
        == 7
    )


def test_cheap_guards_come_first() -> None:
    x = Local("x")
    ran = []
    guards = [Predicate(x, lambda value: ran.append(value) or True, "seen"), TypeIs(Local("y"), int)]
    tree = GuardSet(guards).native(("x", "y"))
    assert not tree.check(1, "no") and not ran
    assert tree.check(1, 2) and ran == [1]


def test_the_type_of_a_value_is_checked_before_its_attributes() -> None:
    class Touchy:
        @property
        def name(self) -> Any:
            raise AssertionError("touched")

    tree = GuardSet([Equals(Attr(Local("x"), "name"), 1), TypeIs(Local("x"), int)]).native(("x",))
    assert not tree.check(Touchy())


def test_looking_for_a_key_that_is_not_there_asks_no_missing() -> None:
    class Filling(dict[Any, Any]):
        def __missing__(self, key: Any) -> Any:
            self[key] = 0

    for table in (collections.defaultdict(list), Filling()):
        guards = GuardSet([Equals(Item(Local("x"), 1), 2)])
        assert not guards.native(("x",)).check(table)
        assert guards.explain({"x": table}) is not None
        assert not table


@pytest.mark.parametrize(
    ("guard", "value", "source", "expected", "found"),
    [
        (Equals(Item(Local("x"), "n"), 3), {"n": 4}, "x['n']", "3", "4"),
        (Equals(Item(Local("x"), "n"), 3), {"n": 3.0}, "x['n']", "3 (int)", "3.0 (float)"),
        (TypeIs(Local("x"), dict), 1, "x", "type dict", "type int"),
        (DictKeys(Local("x"), ("a", "b")), {"b": 1, "a": 2}, "x", "keys ['a', 'b']", "keys ['b', 'a']"),
        (Is(Local("x"), None), 5, "x", "None", "5"),
    ],
)
def test_explains(guard: Any, value: Any, source: str, expected: str, found: str) -> None:
    failure = GuardSet([guard]).explain({"x": value})
    assert failure is not None
    assert (failure.source, failure.expected, failure.found) == (source, expected, found)


def test_explains_what_cannot_be_read() -> None:
    failure = GuardSet([Equals(Attr(Local("x"), "missing"), 3)]).explain({"x": 1})
    assert failure is not None and "nothing there" in failure.found and "missing" in failure.found


def test_refuses_a_value_that_is_no_constant() -> None:
    with pytest.raises(GuardError, match="GU001.*list"):
        GuardSet([Equals(Local("x"), [1])])


def test_refuses_an_unknown_local() -> None:
    with pytest.raises(GuardError, match="GU002.*'x'"):
        GuardSet([TypeIs(Local("x"), int)]).native(("y",))


def test_refuses_what_is_no_guard() -> None:
    with pytest.raises(GuardError, match="GU003"):
        GuardSet([object()])  # type: ignore[list-item]


def test_an_error_in_a_check_is_failure_and_leaves_no_trace() -> None:
    def broken(value: Any) -> bool:
        raise ValueError("broken")

    tree = GuardSet([Predicate(Local("x"), broken, "broken")]).native(("x",))
    assert tree.check(1) is False
    assert sys.exc_info() == (None, None, None)


def test_checks_leak_nothing() -> None:
    value = {"a": [object(), 1.5]}
    held = [value, value["a"], value["a"][0]]
    guards = [
        TypeIs(Item(Item(Local("x"), "a"), 1), float),
        Equals(Item(Item(Local("x"), "a"), 1), 1.5),
        Is(Item(Item(Local("x"), "a"), 0), None),
    ]
    good, bad = GuardSet(guards[:2]).native(("x",)), GuardSet(guards).native(("x",))
    before = [sys.getrefcount(item) for item in held]
    for _ in range(1000):
        assert good.check(value)
        assert not bad.check(value)
    assert [sys.getrefcount(item) for item in held] == before


def test_a_tree_goes_with_its_cycle() -> None:
    class Holder:
        pass

    alive = []

    class Tracked:
        def __del__(self) -> None:
            alive.append("gone")

    def make() -> None:
        holder = Holder()
        holder.tracked = Tracked()  # type: ignore[attr-defined]
        holder.tree = GuardSet([Is(Local("x"), holder)]).native(("x",))  # type: ignore[attr-defined]

    make()
    gc.collect()
    assert alive == ["gone"]


def test_prints() -> None:
    text = str(GuardSet([Equals(Item(Local("x"), "n"), 3), TypeIs(Local("x"), dict)]))
    assert text == "TypeIs(x, type=dict)\nEquals(x['n'], value=3)"


def test_a_table_of_kinds_is_whole_or_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dict(kinds())
    kinds.cache_clear()

    def unreadable(folder: Any = ".") -> list[str]:
        raise OSError(errno.ENOMEM, "Cannot allocate memory", folder)

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", unreadable)
        with pytest.raises(OSError, match="Cannot allocate"):
            kinds()
    assert kinds() == whole
