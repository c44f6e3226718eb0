"""Dictionaries that hold the attributes of objects: of the object itself (``self.__dict__ = self``), of several objects, of a class with
ways of its own, ones that are arguments as well, and ones that the class hides behind a property named ``__dict__``."""

from __future__ import annotations

import argparse
import collections
import copy
import functools
import random
import threading
import types
from typing import Any

import pytest
import torch
from alike import outcome

from opmill_bytecode_frontend import capture
from opmill_guards import instance_dict


class Config(dict):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.__dict__ = self


class Shared:
    STATE: dict[str, Any] = {}

    def __init__(self) -> None:
        self.__dict__ = self.STATE


class ReadOnly(dict):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("written")

    def setdefault(self, key: Any, default: Any = None) -> Any:
        raise TypeError("written by default")


class Fixed:
    def __init__(self) -> None:
        self.x = 1
        self.__dict__ = ReadOnly(self.__dict__)


class Plain:
    def __init__(self) -> None:
        self.x = 1


def item_then_attribute(it: Any) -> Any:
    it["x"] = 5
    it.update(y=6)
    return it.x, it.y, it.pop("y"), hasattr(it, "y")


def attribute_then_item(it: Any) -> Any:
    it.x, it.n = 6, 7
    return it["x"], len(it), sorted(it), it.get("n")


def deleted(it: Any) -> Any:
    del it["x"]
    return hasattr(it, "x"), len(it)


def each_attribute(it: Any) -> Any:
    for key in list(it):
        setattr(it, key, 9)
    it.setdefault("w", []).append(1)
    return dict(it), it.w


def itself(it: Any) -> Any:
    return it.__dict__ is it, vars(it) is it, "x" in it, it.x


def made(it: Any) -> Any:
    new = type(it)(x=1)
    new.y = 2
    new["z"] = 3
    return new["y"], new.z, len(new)


@pytest.mark.parametrize("program", [item_then_attribute, attribute_then_item, deleted, each_attribute, itself, made])
def test_dictionaries_whose_attributes_are_their_items(program: Any) -> None:
    compiled = capture(program, "eager")
    for start in ({"x": 1}, {"x": 2}, {"x": 1, "more": 3}):
        mine, plain = Config(start), Config(start)
        assert outcome(compiled, mine) == outcome(program, plain)
        assert dict(mine) == dict(plain) and mine.__dict__ is mine


def test_attributes_that_are_items_cost_no_break() -> None:
    compiled = capture(lambda it, x: (x * it.x, it["x"]), "eager", fullgraph=True)
    for start in (2, 2, 3):
        assert compiled(Config(x=start), torch.ones(2))[0].tolist() == [start, start]


# --- one dictionary for several ------------------------------------------------------------------------------------------------------


def of_another(a: Any, b: Any, table: dict[str, Any]) -> Any:
    a.x = 2
    found = b.x
    b.x = 3
    return found, a.x


def of_the_class(a: Any, b: Any, table: dict[str, Any]) -> Any:
    table["x"] = 7
    return a.x, b.x


def by_the_object(a: Any, b: Any, table: dict[str, Any]) -> Any:
    a.y = 4
    return table["y"], len(table), b.y


@pytest.mark.parametrize("program", [of_another, of_the_class, by_the_object])
def test_a_dictionary_of_several(program: Any) -> None:
    def called(function: Any, alone: bool) -> Any:
        Shared.STATE.clear()
        Shared.STATE["x"] = 1
        it = Plain() if alone else Shared()
        table = it.__dict__
        return outcome(function, it, it if alone else Shared(), table), dict(table)

    compiled = capture(program, "eager")
    for alone in (False, True, False):
        assert called(compiled, alone) == called(program, alone)


# --- one with ways of its own --------------------------------------------------------------------------------------------------------


def writes_item(it: Any) -> Any:
    it.__dict__["x"] = 2


def writes_default(it: Any) -> Any:
    return vars(it).setdefault("y", 2)


def writes_attribute(it: Any) -> Any:
    it.x = 2
    return it.x, type(it.__dict__).__name__, copy.copy(dict(it.__dict__))


def of_a_new_one(it: Any) -> Any:
    return writes_default(type(it)())


@pytest.mark.parametrize("program", [writes_item, writes_default, writes_attribute, of_a_new_one])
def test_a_dictionary_of_another_class(program: Any) -> None:
    compiled = capture(program, "eager")
    for kind in (Plain, Fixed, Plain, Fixed):
        mine, plain = kind(), kind()
        assert outcome(compiled, mine) == outcome(program, plain)
        assert dict(mine.__dict__) == dict(plain.__dict__)


# --- one that its class does not show ------------------------------------------------------------------------------------------------


class Hiding:
    def __init__(self, **given: Any) -> None:
        for key, value in given.items():
            setattr(self, key, value)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return {"shown": 3}


class Shown(Plain):
    def __init__(self, **given: Any) -> None:
        self.x = given.get("x")

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return {"behind": super().__dict__}


class Items(dict):
    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return {key: [value] for key, value in self.items()}

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Slotted:
    __slots__ = ("x", "__dict__")

    def __init__(self, **given: Any) -> None:
        self.x = given.get("x")


HIDDEN = (Hiding, Shown, Items, Slotted)


def own(it: Any) -> Any:
    """What the object has, whatever its class says."""
    return {name: getattr(it, name) for name in ("x", "y", "z") if hasattr(type(it), name) or name in instance_dict(it)}


def asked(it: Any) -> Any:
    return it.__dict__, vars(it), getattr(it, "__dict__"), it.x


def assigned(it: Any) -> Any:
    it.y = 7
    return it.y, it.__dict__, vars(it)


def assigned_behind_a_break(it: Any) -> Any:
    it.y = 7
    print(end="")
    it.z = it.y + 1
    return it.__dict__, it.z


def gone(it: Any) -> Any:
    it.y = 1
    del it.y
    return hasattr(it, "y"), "y" in it.__dict__


def of_the_base(it: Any) -> Any:
    it.y = 5
    table = vars(Plain)["__dict__"].__get__(it)
    table["z"] = 6
    return it.z, table, it.__dict__


def new_one(it: Any) -> Any:
    new = type(it)(x=4)
    new.y = 2
    return new.__dict__, new.y, new


def new_one_behind_a_break(it: Any) -> Any:
    new = type(it)(x=it.x)
    print(end="")
    new.z = new.x
    return new.__dict__, new


def copied(it: Any) -> Any:
    return own(copy.copy(it)), own(copy.deepcopy(it))


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize("program", [asked, assigned, assigned_behind_a_break, gone, of_the_base, new_one, new_one_behind_a_break, copied])
def test_a_dictionary_that_the_class_does_not_show(program: Any, kind: Any) -> None:
    def called(function: Any, it: Any) -> Any:
        result = outcome(function, it)
        if type(result) is tuple and type(result[-1]) is kind:
            *result, new = result
            result += [own(new), instance_dict(new), list(new) if kind is Items else 0]
        return result, own(it)

    compiled = capture(program, "eager")
    for x in (1, 2, 1):
        mine, plain = kind(x=x), kind(x=x)
        assert called(compiled, mine) == called(program, plain)
        assert instance_dict(mine) == instance_dict(plain)


def test_what_a_cached_property_keeps_is_kept_in_what_the_class_shows() -> None:
    class Cached(Hiding):
        times = 0

        @functools.cached_property
        def twice(self) -> int:
            type(self).times += 1
            return 2 * self.x

    def program(it: Any) -> Any:
        return it.twice, it.twice, type(it).times

    compiled = capture(program, "eager")
    Cached.times = 0
    mine = [compiled(Cached(x=3)) for _ in range(3)]
    Cached.times = 0
    assert mine == [program(Cached(x=3)) for _ in range(3)]


# --- dictionaries that classes written in C show in ways of their own ------------------------------------------------------------------


class Local(threading.local):
    pass


class Slotted:
    __slots__ = ("__dict__", "y")


class Numbered(int):
    pass


def bare() -> Any:
    pass


KINDS: dict[str, Any] = {
    "types.SimpleNamespace": types.SimpleNamespace,
    "argparse.Namespace": argparse.Namespace,
    "threading.local": threading.local,
    "derived from it": Local,
    "functools.partial": lambda: functools.partial(bare),
    "a slot": Slotted,
    "a number": lambda: Numbered(3),
    "an exception": lambda: ValueError("no"),
    "a queue": collections.UserDict,
    "an ordered dictionary": collections.OrderedDict,
    "a deque": type("Deque", (collections.deque,), {}),
    "a module": lambda: types.ModuleType("made"),
    "a function": lambda: types.FunctionType(bare.__code__, {}),
    "random numbers": lambda: random.Random(3),
    "a lock": threading.Event,
}


def shown(it: Any, x: Any) -> Any:
    it.a = 1
    vars(it)["b"] = 2
    return (
        it.b,
        sorted(k for k in it.__dict__ if len(k) == 1),
        vars(it) is it.__dict__,
        hasattr(it, "__dict__"),
        len(copy.copy(it).__dict__),
        x + 1,
    )


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("inside", [True, False])
def test_every_object_that_keeps_attributes_shows_them(name: str, inside: bool) -> None:
    program = (lambda it, x: shown(KINDS[name](), x)) if inside else shown
    compiled = capture(program, "eager")
    for _ in range(3):
        mine, plain = KINDS[name](), KINDS[name]()
        assert repr(outcome(compiled, mine, torch.ones(1))) == repr(outcome(program, plain, torch.ones(1)))
        assert {k: v for k, v in vars(mine).items() if len(k) == 1} == {k: v for k, v in vars(plain).items() if len(k) == 1}
