"""Random values, sources and guards: the native tree says what the reference says, before and after mutation."""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_guards import GuardSet, reference
from opmill_guards.guard import Absent, AllDistinct, DictKeys, Equals, Is, Length, Predicate, SameObject, SizeRelation, TypeIs
from opmill_guards.source import Ahead, Attr, CellContents, DictKeyAt, InstanceDict, Item, Iterated, Local, Pinned, Referent, TypeOf

SETTINGS = settings(derandomize=True, max_examples=300, deadline=None)
NAMES = ("a", "b")


class Plain:
    shared = 3

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    @property
    def x(self) -> int:
        return 11


class Slotted:
    __slots__ = ("x", "y")

    def __init__(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)


class Answering:
    """Attributes from ``__getattr__``."""

    def __getattr__(self, name: str) -> Any:
        if name == "y":
            return 5
        raise AttributeError(name)


class Raising:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


class NoDict(tuple):
    __slots__ = ()


class List(list):  # type: ignore[type-arg]
    def __getitem__(self, key: Any) -> Any:
        return "overridden"

    def __len__(self) -> int:
        return 77


class Dict(dict):  # type: ignore[type-arg]
    def __getitem__(self, key: Any) -> Any:
        return "overridden"


def cell(value: Any) -> Any:
    return (lambda: value).__closure__[0]  # type: ignore[index]


KEYS = st.sampled_from(["x", "y", "shared", 0, 1, -1, True, (1, 2), None])
ATTRIBUTES = st.sampled_from(["x", "y", "shared", "__class__"])
CONSTANTS = st.one_of(
    st.integers(-3, 3), st.sampled_from([0.0, -0.0, float("nan"), 1.0, 2**70, "x", "", b"x", None, True, 1j, complex(0.0, -0.0), ...]),
    st.tuples(st.integers(0, 2), st.sampled_from([0.0, -0.0, True, 1])), st.frozensets(st.sampled_from([1, 2, "x"])), st.just(frozenset({True})),
)  # fmt: skip


DEAD = weakref.ref(Plain())


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    attributes = st.dictionaries(st.sampled_from(["x", "y"]), children, max_size=2)
    return st.one_of(
        st.lists(children, max_size=3), st.lists(children, max_size=3).map(tuple), st.lists(children, max_size=3).map(NoDict),
        st.lists(children, max_size=3).map(List), st.dictionaries(KEYS, children, max_size=3), st.dictionaries(KEYS, children, max_size=3).map(Dict),
        st.dictionaries(KEYS, children, max_size=3).map(OrderedDict), st.lists(children, max_size=2).map(deque),
        attributes.map(lambda a: Plain(**a)), attributes.map(lambda a: Slotted(**a)), attributes.map(lambda a: SimpleNamespace(**a)),
        children.map(cell), st.builds(Answering), st.builds(Raising), st.just(Plain), st.sampled_from([weakref.ref(Plain), DEAD]),
    )  # fmt: skip


VALUES = st.recursive(CONSTANTS, containers, max_leaves=8)


def longer(sources: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(Attr, sources, ATTRIBUTES), st.builds(InstanceDict, sources), st.builds(Item, sources, KEYS),
        st.builds(DictKeyAt, sources, st.integers(-1, 2)), st.builds(TypeOf, sources), st.builds(CellContents, sources), st.builds(Referent, sources),
        st.builds(Ahead, sources, st.integers(-1, 2)), st.builds(Iterated, sources),
    )  # fmt: skip


PINNED = Pinned(Plain(x=1, y=[1, {"x": 2}]), "pinned")
SOURCES = st.recursive(st.one_of(st.builds(Local, st.sampled_from(NAMES)), st.just(PINNED)), longer, max_leaves=4)
TYPES = st.sampled_from([int, str, float, bool, tuple, list, dict, Plain, Slotted, NoDict, OrderedDict, type])
GUARDS = st.one_of(
    st.builds(TypeIs, SOURCES, TYPES), st.builds(Is, SOURCES, st.sampled_from([None, True, 1, Plain, int])), st.builds(Equals, SOURCES, CONSTANTS),
    st.builds(Length, SOURCES, st.integers(-1, 3)), st.builds(DictKeys, SOURCES, st.lists(KEYS, max_size=2, unique=True).map(tuple)),
    st.builds(Absent, SOURCES, KEYS), st.builds(SameObject, SOURCES, SOURCES), st.builds(AllDistinct, st.lists(SOURCES, max_size=3).map(tuple)),
    st.builds(SizeRelation, st.sampled_from(["s0 < s1", "s0 == s1 + 1", "Mod(s0, 2)", "max(s0, s1) > 1"]), st.tuples(SOURCES, SOURCES)),
    st.builds(Predicate, SOURCES, st.just(bool), st.just("truthy")),
)  # fmt: skip


def agree(guards: list[Any], values: list[Any]) -> bool:
    local_values = dict(zip(NAMES, values))
    expected = all(reference.check(guard, local_values) for guard in guards)
    guard_set = GuardSet(guards)
    assert guard_set.native(NAMES).check(*values) is expected, str(guard_set)
    assert (guard_set.explain(local_values) is None) is expected
    assert guard_set.check(local_values) is expected
    return expected


@SETTINGS
@given(GUARDS, st.lists(VALUES, min_size=2, max_size=2))
def test_one_guard(guard: Any, values: list[Any]) -> None:
    agree([guard], values)


@SETTINGS
@given(st.lists(GUARDS, max_size=5), st.lists(VALUES, min_size=2, max_size=2))
def test_several_guards(guards: list[Any], values: list[Any]) -> None:
    agree(guards, values)


def facts(source: Any, value: Any, depth: int = 0) -> list[Any]:
    """Guards that hold for this value, down to some depth."""
    found: list[Any] = [TypeIs(source, type(value))]
    exact = type(value)
    if depth > 3:
        return found
    if exact in (int, str, float, bool, bytes, complex):
        found.append(Equals(source, value))
    elif exact in (list, tuple, NoDict, List):
        storage = list.__len__(value) if isinstance(value, list) else tuple.__len__(value)
        found.append(Length(source, storage))
        items = list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value)
        for i, item in enumerate(items):
            found += facts(Item(source, i), item, depth + 1)
    elif exact in (dict, Dict, OrderedDict):
        found.append(DictKeys(source, tuple(value)))
        for key in value:
            found += facts(Item(source, key), dict.__getitem__(value, key), depth + 1)
    elif exact in (Plain, SimpleNamespace):
        found.append(DictKeys(InstanceDict(source), tuple(vars(value))))
        for name, item in vars(value).items():
            found += facts(Item(InstanceDict(source), name), item, depth + 1)
    elif exact is Slotted:
        for name in Slotted.__slots__:
            if hasattr(value, name):
                found += facts(Attr(source, name), getattr(value, name), depth + 1)
    return found


def mutate(value: Any, pick: int) -> None:
    """Some change in place, or none where the value cannot change."""
    if isinstance(value, list):
        list.append(value, pick) if pick % 2 or not list.__len__(value) else list.__setitem__(value, 0, object())
    elif isinstance(value, OrderedDict) and len(value) > 1:
        value.move_to_end(next(iter(value)))
    elif isinstance(value, dict):
        value["x" if pick % 2 else "fresh"] = pick
    elif isinstance(value, (Plain, Slotted, SimpleNamespace)):
        if type(value) is Plain:
            vars(value)["x"] = pick
        else:
            value.x = pick


@SETTINGS
@given(st.lists(VALUES, min_size=2, max_size=2), st.integers(0, 3))
def test_facts_hold_until_mutation(values: list[Any], pick: int) -> None:
    guards = [guard for name, value in zip(NAMES, values) for guard in facts(Local(name), value)]
    guard_set = GuardSet(guards)
    tree = guard_set.native(NAMES)
    assert tree.check(*values), guard_set.explain(dict(zip(NAMES, values)))
    for value in values:
        mutate(value, pick)
    assert tree.check(*values) is guard_set.check(dict(zip(NAMES, values)))
    assert tree.check(*values) is guard_set.check(dict(zip(NAMES, values)))


def test_unset_cell_and_missing_attribute_fail() -> None:
    def outer() -> Any:
        def inner() -> Any:
            return late

        yield inner
        late = 1
        yield inner

    steps = outer()
    empty = next(steps).__closure__[0]
    assert not agree([Equals(CellContents(Local("a")), 1)], [empty, None])
    next(steps)
    assert agree([Equals(CellContents(Local("a")), 1)], [empty, None])


def test_class_dictionary() -> None:
    class C:
        value = 1

    guards = [Equals(Item(InstanceDict(Local("a")), "value"), 1), Absent(InstanceDict(Local("a")), "other")]
    tree = GuardSet(guards).native(NAMES)
    assert tree.check(C, None)
    C.other = 2  # type: ignore[attr-defined]
    assert not tree.check(C, None)
