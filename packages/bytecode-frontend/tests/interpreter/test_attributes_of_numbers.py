"""Numbers and texts of derived classes, and members of enumerations, keep attributes as any object does: what a program reads there may
have changed since the last call, and what it writes is seen by others."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from alike import outcome

from opmill_bytecode_frontend import capture


def derived(base: type, value: object) -> Callable[[], Any]:
    """Makers of objects of a class of their own, which has no methods."""

    def make() -> Any:
        cls = type(f"A{base.__name__.title()}", (base,), {"shared": [], "deep": {"of": []}})
        it = cls(value)
        it.k, it.items = 1, []
        return it

    return make


def member() -> Any:
    made = enum.Enum("Made", {"A": [1]})
    made.A.k, made.A.items, made.shared, made.deep = 1, [], [], {"of": []}
    return made.A


def number_and_member() -> Any:
    made = enum.IntEnum("Made", {"A": 1})
    made.A.k, made.A.items = 1, []
    made.shared, made.deep = [], {"of": []}
    return made.A


KINDS: dict[str, Callable[[], Any]] = {
    "int": derived(int, 3),
    "float": derived(float, 2.5),
    "complex": derived(complex, 1j),
    "str": derived(str, "a"),
    "bytes": derived(bytes, b"a"),
    "tuple": derived(tuple, (1,)),
    "frozenset": derived(frozenset, (1,)),
    "Enum": member,
    "IntEnum": number_and_member,
}


def appended(it: Any) -> Any:
    it.items.append(len(it.items))
    return list(it.items), it.items is it.items


def counted(it: Any) -> Any:
    it.k += 1
    return it.k


def written_by_name(it: Any) -> Any:
    it.__dict__["b"] = 2
    vars(it)["c"] = 3
    return it.b, it.c, sorted(k for k in vars(it) if k in "kbc")


def read_by_name(it: Any) -> Any:
    table = vars(it)
    it.fresh = 5
    return table["fresh"], "fresh" in it.__dict__


def of_the_class(it: Any) -> Any:
    it.shared.append(1)
    it.deep["of"].append(2)
    return list(it.shared), it.deep


def taken_away(it: Any) -> Any:
    it.gone = 1
    before = hasattr(it, "gone")
    del it.gone
    return before, hasattr(it, "gone"), getattr(it, "gone", "nothing")


def read(it: Any) -> Any:
    return it.k, list(it.items), list(it.shared), getattr(it, "later", None)


def content(it: Any) -> Any:
    found = getattr(it, "value", None)
    if type(found) is list:
        found.append(2)
    return found, it == it, bool(it)


PROGRAMS = [appended, counted, written_by_name, read_by_name, of_the_class, taken_away, read, content]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("name", KINDS)
def test_attributes_are_read_and_written_at_each_call(name: str, program: Callable[[Any], Any]) -> None:
    compiled = capture(lambda it, x: (program(it), x + 1), "eager")
    mine, plain = KINDS[name](), KINDS[name]()
    for i in range(4):
        assert repr(outcome(compiled, mine, torch.ones(1))) == repr(outcome(lambda it, x: (program(it), x + 1), plain, torch.ones(1)))
        assert repr(vars(mine)) == repr(vars(plain)) and mine.shared == plain.shared and mine.deep == plain.deep
        for it in (mine, plain):  # between two calls
            it.k, it.later = it.k * 2, i
            it.items.append("between")
            it.shared.append("between")
