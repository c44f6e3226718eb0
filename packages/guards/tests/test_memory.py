"""The native tree remembers at which version of a dictionary its guards held: whatever is rebound in between, it says what Python says."""

from __future__ import annotations

from collections import OrderedDict
from types import ModuleType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_guards import GuardSet
from opmill_guards.guard import Absent, DictKeys, Equals, Is, Length, TypeIs
from opmill_guards.source import Attr, InstanceDict, Item, Pinned

NAMES = st.sampled_from("abcd")


class World:
    """What the guards look at: a module's globals, a class, an instance of it, an ordered dictionary, and dictionaries in them."""

    def __init__(self) -> None:
        self.module = ModuleType("world")
        self.cls: Any = type("Thing", (), {"a": 1, "b": "x", "__doc__": None})
        self.thing = self.cls()
        self.ordered: OrderedDict[str, Any] = OrderedDict(a=1, b=2)
        self.values: list[Any] = [1, 1.0, "x", None, {"a": 1}, {}, self.thing, (1, 2)]
        self.module.__dict__.update(a={"a": 1, "b": {}}, b=self.thing, c=1)
        self.thing.a = 5

    def tables(self) -> list[Any]:
        inner = [value for value in self.module.__dict__.values() if type(value) is dict]
        return [self.module.__dict__, self.thing.__dict__, self.ordered, *inner]

    def guards(self, names: list[str], kinds: list[int]) -> list[Any]:
        roots = [
            Pinned(self.module.__dict__, "world"),
            InstanceDict(Pinned(self.cls, "Thing")),
            InstanceDict(Pinned(self.thing, "thing")),
            Pinned(self.ordered, "ordered"),
        ]
        roots += [InstanceDict(Item(roots[0], "b")), Item(roots[0], "a"), InstanceDict(Pinned(self.module, "module"))]
        result: list[Any] = []
        for root in roots:
            for name, kind in zip(names, kinds):
                source = Item(root, name)
                try:
                    value = _table(self, root)[name]
                except (KeyError, TypeError):
                    result.append(Absent(root, name))
                    continue
                choices: list[Any] = [Is(source, value), TypeIs(source, type(value)), Absent(source, "zz") if type(value) is dict else None]
                choices.append(Equals(source, value) if type(value) in (int, str, float) else None)
                choices.append(Is(Attr(source, "a"), value.a) if isinstance(value, self.cls) else None)
                choices.append(Length(source, len(value)) if type(value) is dict else None)
                guard = choices[kind % len(choices)]
                result.append(Is(source, value) if guard is None else guard)
        result.append(DictKeys(roots[3], tuple(self.ordered)))
        result.append(DictKeys(roots[5], tuple(self.module.a)))
        return result


def _table(world: World, root: Any) -> Any:
    from opmill_guards.reference import read

    return read(root, {})


MOVES = st.tuples(st.integers(0, 8), st.integers(0, 9), NAMES, st.integers(0, 7))


def _move(world: World, kind: int, table: int, name: str, value: int) -> None:
    tables = world.tables()
    target, new = tables[table % len(tables)], world.values[value]
    if kind == 0:
        target[name] = new
    elif kind == 1:
        target.pop(name, None)
    elif kind == 2 and name in target:
        target[name] = target.pop(name)  # to the end
    elif kind == 3:
        target.update({name: new})
    elif kind == 4:
        setattr(world.cls, name, new)
    elif kind == 5 and name in vars(world.cls):
        delattr(world.cls, name)
    elif kind == 6:
        setattr(world.thing, name, new)
    elif kind == 7 and name in world.ordered:
        world.ordered.move_to_end(name)
    elif kind == 8 and name in target:
        target[name] = target[name]  # nothing changes


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(NAMES, min_size=1, max_size=3, unique=True), st.lists(st.integers(0, 5), min_size=3, max_size=3), st.lists(MOVES, max_size=12)
)
def test_agrees_with_python_after_every_change(names: list[str], kinds: list[int], moves: list[tuple[int, int, str, int]]) -> None:
    world = World()
    guards = world.guards(names, kinds)
    pairs = [(GuardSet([guard]), GuardSet([guard]).native(())) for guard in guards] + [(GuardSet(guards), GuardSet(guards).native(()))]
    for move in [None, None, *moves]:
        if move is not None:
            _move(world, *move)
        for guard_set, tree in pairs:
            assert tree.check() == guard_set.check({}), str(guard_set)


def test_a_replaced_dictionary_is_seen() -> None:
    outer = {"inner": {"a": 1}}
    tree = GuardSet([Equals(Item(Item(Pinned(outer, "outer"), "inner"), "a"), 1)]).native(())
    assert tree.check() and tree.check()
    for value in (2, 1, 3):
        outer["inner"] = {"a": value}
        assert tree.check() == (value == 1)


def test_a_changed_class_of_a_remembered_object_is_seen() -> None:
    class A:
        pass

    class B:
        pass

    thing = A()
    tree = GuardSet([TypeIs(Item(Pinned({"thing": thing}, "d"), "thing"), A)]).native(())
    assert tree.check() and tree.check()
    thing.__class__ = B  # type: ignore[assignment]
    assert not tree.check()


def test_a_module_given_a_class_is_seen() -> None:
    class Special(ModuleType):
        pass

    module = ModuleType("m")
    tree = GuardSet([TypeIs(Item(Pinned({"m": module}, "d"), "m"), ModuleType)]).native(())
    assert tree.check() and tree.check()
    module.__class__ = Special
    assert not tree.check()
