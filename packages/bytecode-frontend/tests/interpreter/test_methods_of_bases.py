"""Methods that builtin bases have behind the program's own (``super().append``), where the graph ends before they are called; and what is
found in a class that captured code makes (``__dict__``, ``__mro__``, slots), where that leaves the graph."""

from __future__ import annotations

import collections
import functools
import os
import time
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


@torch.compiler.disable
def apart(value: Any = 0) -> Any:
    return value


class Error(Exception):
    def __init__(self, what: int, where: int) -> None:
        super().__init__(f"{what}{apart()}")
        self.what = what

    def __str__(self) -> str:
        return super().__str__() + str(apart())


class List(list):
    def __init__(self, *items: int) -> None:
        super().__init__([apart(), *items])

    def append(self, item: int) -> None:
        super().append(item + apart(1))
        super().append(apart())


class Dict(dict):
    def __init__(self) -> None:
        super().__init__({1: apart()}, key=apart())

    def __setitem__(self, key: int, item: int) -> None:
        super().__setitem__(key, item + apart(1))

    def get(self, key: int) -> int:
        return super().get(key, apart(5))


class Ordered(collections.OrderedDict):
    def __setitem__(self, key: int, item: int) -> None:
        super().__setitem__(key, item + apart(1))
        super(collections.OrderedDict, self).__setitem__(key, self[key] + apart(1))


class Integer(int):
    def __new__(cls, value: int) -> Integer:
        return super().__new__(cls, value + apart(1))

    def __add__(self, other: int) -> int:
        return super().__add__(other + apart(1))


class Text(str):
    def upper(self) -> str:
        return super().upper() + super().replace("a", str(apart()))


class Set(set):
    def add(self, item: int) -> None:
        super().add(item + apart(1))


class Tuple(tuple):
    def index(self, item: int) -> int:
        return super().index(item + apart(1))


class Deque(collections.deque):
    def append(self, item: int) -> None:
        super().append(item + apart(1))


class Object:
    def __setattr__(self, name: str, value: int) -> None:
        super().__setattr__(name, value + apart(1))


class Tensor(torch.Tensor):
    def add(self, other: int) -> torch.Tensor:
        return super().add(other + apart(1))


def errors() -> Any:
    error = Error(1, 2)
    return str(error), error.args, error.what


def lists() -> Any:
    made = List(3)
    made.append(4)
    return list.__repr__(made)


def dictionaries() -> Any:
    made, ordered = Dict(), Ordered()
    made[3] = ordered[3] = 4
    return dict.__repr__(made), made.get(9), [*ordered.items()]


def values() -> Any:
    return Integer(3) + 4, Text("abc").upper(), Tuple([1, 2]).index(1)


def others() -> Any:
    some, queue, it = Set(), Deque(maxlen=2), Object()
    for i in range(3):
        some.add(i)
        queue.append(i)
    it.x = 3
    return sorted(some), [*queue], it.x, torch.ones(2).as_subclass(Tensor).add(3).tolist()


@pytest.mark.parametrize("program", [errors, lists, dictionaries, values, others])
def test_behind_a_break(program: Callable[[], Any]) -> None:
    compiled = capture(program)
    assert [compiled(), compiled()] == [program(), program()]


def given(method: Any, item: Any) -> Any:
    return method(item)


def test_given_as_arguments() -> None:
    """Methods of one name, of one object, and of several classes behind it."""
    compiled = capture(given)
    for _ in range(3):
        seen = []
        for call in compiled, given:
            it = Ordered()
            mine, behind = super(Ordered, it).__setitem__, super(collections.OrderedDict, it).__setitem__
            collected = [
                call(lambda method: (method(1, 2), dict(it)), method)[1] for method in (mine, it.__setitem__, behind, mine, behind)
            ]
            made = List()
            seen.append((collected, call(made.append, 3), call(super(List, made).append, 3), call([].append, 1), list(made)))
        assert seen[0] == seen[1]


class Meta(type):
    pass


class Field:
    pass


def made() -> Any:
    class Base(metaclass=Meta):
        field = Field()

        def method(self) -> None:
            pass

    class Derived(Base):
        __slots__ = ("slot",)

    return Base, Derived


def tables() -> Any:
    base, _ = made()
    names, apart_ = base.__dict__, apart()
    return names["field"] is base.field, [each.__class__.__name__ for each in names.values()], apart_, names == dict(vars(base))


def walked() -> Any:
    base, _ = made()
    return list(name for name, item in base.__dict__.items() if item.__class__ is Field), tuple(vars(base))


def lineage() -> Any:
    base, derived = made()
    mro, bases = derived.__mro__, derived.__bases__
    apart()
    return mro[0] is derived, mro[1] is base, bases[0] is base, derived.__base__ is base, base.mro()[0] is base


def slots() -> Any:
    _, derived = made()
    slot, it = derived.slot, derived()
    apart()
    slot.__set__(it, 3)
    return it.slot, slot.__objclass__ is derived, slot is derived.__dict__["slot"]


@pytest.mark.parametrize("program", [tables, walked, lineage, slots])
def test_found_in_made_classes(program: Callable[[], Any]) -> None:
    assert capture(program)() == program()


def found() -> Any:
    base, derived = made()
    return base, derived, base.__dict__, derived.__mro__, derived.slot, vars(base).values()


def test_made_classes_outside() -> None:
    for _ in range(2):
        base, derived, names, mro, slot, values = capture(found)()
        assert type(names["field"]) is Field and names == vars(base) and mro == (derived, base, object) and slot is derived.slot
        assert [*values] == [*vars(base).values()]


def before() -> int:
    return 3


def attributes() -> Any:
    def function() -> int:
        return 3

    seen = [[(name, hasattr(each, name)) for name in dir(type(each))] for each in (function, before)]
    return seen, function.__class__, before.__class__, function.__call__(), before.__call__(), before.__eq__(before)


def test_attributes_of_functions() -> None:
    assert capture(attributes)() == attributes()


class Tree(collections.defaultdict):
    def __init__(self) -> None:
        self.default_factory = self.__class__


class Counting(collections.defaultdict):
    def __init__(self) -> None:
        super().__init__(int)
        self["made"] = 1


def trees() -> Any:
    tree, counting, plain = Tree(), Counting(), collections.defaultdict(int)
    tree["a"]["b"] = 1
    counting["first"] += 1
    plain.default_factory = counting.default_factory = list
    seen = tree["z"].default_factory is Tree, counting["second"], plain["x"]
    apart()
    return *seen, tree, tree["y"]["x"].default_factory is Tree, counting, plain, counting.default_factory


def test_factories_of_derived_dictionaries() -> None:
    ours, plainly = capture(trees)(), trees()
    assert ours == plainly and repr(ours) == repr(plainly)
    assert ours[3]["new"]["newer"].default_factory is Tree and ours[5]["new"] == [] and ours[6]["new"] == []


def given_before(tree: Tree) -> Any:
    first = tree["new"].default_factory
    tree.default_factory = int
    return first, tree["newer"], tree.default_factory


def test_factory_of_a_dictionary_of_before() -> None:
    ours, plainly = Tree(), Tree()
    compiled = capture(given_before)
    for _ in range(2):
        assert compiled(ours) == given_before(plainly) and ours == plainly and ours.default_factory is int
        ours.default_factory = plainly.default_factory = Tree
        ours.clear()
        plainly.clear()


def sequences() -> Any:
    made = time.struct_time((1, 2, 3, 4, 5, 6, 7, 8, 9))
    apart()
    return made, made.tm_year, os.stat_result(range(10)).st_size


def test_sequences_with_names() -> None:
    assert capture(sequences)() == sequences() and type(capture(sequences)()[0]) is time.struct_time


@functools.singledispatch
def general(value: object) -> str:
    return "general"


def dispatched(kind: Any) -> Any:
    try:
        return general.dispatch(kind)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", [int, "text", typing.List[int], 3], ids=str)  # noqa: UP006
def test_dispatch_of_what_is_no_class(kind: Any) -> None:
    assert capture(dispatched, fullgraph=True)(kind) == dispatched(kind)


class Token(str):
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __contains__(self, other: str) -> bool:
        return str.__contains__(self, other)


class Number(int):
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other)

    def __add__(self, other: int) -> int:
        return int.__add__(self, other)

    def __mod__(self, other: int) -> int:
        return int.__mod__(self, other)


def told_by_content(token: Token, other: Token, number: Number, x: torch.Tensor) -> Any:
    texts = (
        token == other,
        "s" == token,
        token in token,
        token in "xs",
        "s".__eq__(token),
        str.__eq__("s", token),
        token in [other],
    )
    numbers = number == 3, number + number, 3 + number, number % number, int.__mod__(7, number), (7).__add__(number), 7 % number
    return texts, numbers, {"s": 1}[token], {3: 2}[number], float.__add__(1.5, number), x + 1


def test_content_of_derived_texts_and_numbers() -> None:
    """``str.__eq__`` and its kind look at what an operand of a derived class holds."""
    given = Token("s"), Token("s"), Number(3), torch.ones(2)
    assert str(capture(told_by_content, fullgraph=True)(*given)) == str(told_by_content(*given))
