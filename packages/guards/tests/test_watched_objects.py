"""Module trees over plain objects that look like modules: what the watching of dictionaries and classes sees, without torch."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_guards import GuardSet
from opmill_guards.guard import DictKeys, Equals, Length, ModuleTree, TypeIs
from opmill_guards.kinds.module_tree import facts_of
from opmill_guards.source import Attr, Item, Local


class Part:
    kind = "part"

    def __init__(self, depth: int = 0) -> None:
        self._modules: dict[str, Any] = {} if depth == 0 else {str(i): Part(depth - 1) for i in range(2)}
        self._parameters: dict[str, Any] = {}
        self._buffers: dict[str, Any] = {}
        self._forward_hooks: dict[str, Any] = {}
        self.value = depth
        self.pair = (1, [2])
        self.late = None


class Other(Part):
    pass


def guards_of(root: Part) -> GuardSet:
    modules: list[Any] = []
    then: list[Any] = []

    def walk(part: Part, source: Any) -> None:
        modules.append(facts_of(source, part))
        then.extend([Equals(Attr(source, "value"), part.value), Equals(Attr(source, "kind"), "part"), TypeIs(source, Part)])
        then.extend([DictKeys(Attr(source, "_modules"), tuple(part._modules)), Equals(Item(Attr(source, "pair"), 0), 1)])
        then.extend([TypeIs(Attr(source, "pair"), tuple), Length(Item(Attr(source, "pair"), 1), 1)])
        for name, child in part._modules.items():
            walk(child, Item(Attr(source, "_modules"), name))

    walk(root, Local("self"))
    return GuardSet([ModuleTree(tuple(modules), tuple(then))])


def first(root: Part) -> Any:
    return root._modules.get("0", root)


CHANGES: dict[str, Callable[[Part], Any]] = {
    "value": lambda r: setattr(first(r), "value", 99),
    "value back": lambda r: setattr(first(r), "value", 1),
    "unrelated": lambda r: setattr(first(r), "calls", getattr(first(r), "calls", 0) + 1),
    "module replaced": lambda r: r._modules.update({"0": Part(1)}),
    "module deleted": lambda r: r._modules.pop("1", None),
    "table replaced by its copy": lambda r: setattr(r, "_modules", dict(r._modules)),
    "hook": lambda r: first(r)._forward_hooks.update(h=print),
    "hook gone": lambda r: first(r)._forward_hooks.clear(),
    "hooks replaced": lambda r: setattr(first(r), "_forward_hooks", {}),
    "hooks replaced by others": lambda r: setattr(first(r), "_forward_hooks", {"h": len}),
    "dict swapped for its copy": lambda r: setattr(first(r), "__dict__", dict(first(r).__dict__)),
    "dict swapped": lambda r: setattr(first(r), "__dict__", {**first(r).__dict__, "value": 98}),
    "class": lambda r: setattr(first(r), "__class__", Other),
    "class back": lambda r: setattr(first(r), "__class__", Part),
    "list in the pair": lambda r: first(r).pair[1].append(1),
    "list in the pair back": lambda r: first(r).pair.__getitem__(1).__setitem__(slice(None), [2]),
    "pair to a list": lambda r: setattr(first(r), "pair", [1, [2]]),
    "pair back": lambda r: setattr(first(r), "pair", (1, [2])),
    "pair's item": lambda r: isinstance(first(r).pair, list) and first(r).pair.__setitem__(0, 5),
    "shadowing": lambda r: setattr(first(r), "kind", "own"),
    "shadow gone": lambda r: first(r).__dict__.pop("kind", None),
    "class attribute": lambda r: setattr(Part, "kind", "other"),
    "class attribute back": lambda r: setattr(Part, "kind", "part"),
    "class gains": lambda r: setattr(Part, "fresh", 1),
    "class loses": lambda r: "fresh" in vars(Part) and delattr(Part, "fresh"),
    "check": lambda r: None,
}


@pytest.fixture(autouse=True)
def restore() -> Any:
    yield
    tidy()


def tidy() -> None:
    Part.kind = "part"
    if "fresh" in vars(Part):
        del Part.fresh  # type: ignore[attr-defined]


@settings(derandomize=True, max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(sorted(CHANGES)), max_size=12))
def test_sequences(names: list[str]) -> None:
    tidy()
    root = Part(2)
    guards = guards_of(root)
    tree, second = guards.native(("self",)), guards.native(("self",))
    for i, name in enumerate(names):
        CHANGES[name](root)
        expected = guards.check({"self": root})
        assert tree.check(root) is expected, names[: i + 1]
        assert tree.check(root) is expected, names[: i + 1]
    assert second.check(root) is guards.check({"self": root}), names


@pytest.mark.parametrize("change", CHANGES)
def test_each_change(change: str) -> None:
    root = Part(2)
    guards = guards_of(root)
    tree = guards.native(("self",))
    CHANGES[change](root)
    assert tree.check(root) is guards.check({"self": root})
    assert tree.check(root) is guards.check({"self": root})


def test_trees_come_and_go() -> None:
    root = Part(2)
    trees = [guards_of(root).native(("self",)) for _ in range(20)]
    del trees[::2]
    gc.collect()
    assert all(tree.check(root) for tree in trees)
    first(root).value = 99
    assert not any(tree.check(root) for tree in trees)
    del trees
    gc.collect()
    first(root).value = 1


def test_changes_from_another_thread_are_never_lost() -> None:
    root = Part(2)
    guards = guards_of(root)
    tree = guards.native(("self",))
    stop = threading.Event()

    def checks() -> None:
        while not stop.is_set():
            tree.check(root)

    threads = [threading.Thread(target=checks) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(150):
            first(root).value = 99
            assert not tree.check(root)
            first(root).value = 1
            assert tree.check(root)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_trees_of_one_make_share_a_guard() -> None:
    tree = guards_of(Part(3)).native(("self",))
    parts = [Part(3) for _ in range(20)]
    for _ in range(2):
        assert all(tree.check(part) for part in parts)
    parts[3]._modules["1"]._modules["0"].value = 50
    assert [tree.check(part) for part in parts] == [k != 3 for k in range(20)]
    parts[3]._modules["1"]._modules["0"].value = 1
    assert all(tree.check(part) for part in parts)


def test_trees_that_come_and_go_leave_nothing() -> None:
    """Roots, and dictionaries below them, end while evidence lies in them, and others are made at their place."""
    tree = guards_of(Part(2)).native(("self",))
    for k in range(400):
        part = Part(2)
        gone = weakref.ref(part)
        assert tree.check(part)
        part._modules["0"] = Part(1)
        assert tree.check(part)
        part._modules["1"].__dict__ = dict(part._modules["1"].__dict__)
        assert tree.check(part)
        if k % 3 == 0:
            kept, part._modules = part._modules, dict(part._modules)
            assert tree.check(part)
            kept.clear()
            assert tree.check(part)
        if k % 5 == 0:
            part._modules["0"]._modules["1"].value = -1
            assert not tree.check(part)
        del part
        assert gone() is None


def test_a_guard_goes_before_the_trees_that_it_knows() -> None:
    parts = [Part(2) for _ in range(10)]
    for _ in range(20):
        tree = guards_of(Part(2)).native(("self",))
        assert all(tree.check(part) for part in parts)
        del tree
        for part in parts:
            part._modules["0"].calls = 1


def test_a_tree_in_a_cycle_is_let_go() -> None:
    tree = guards_of(Part(2)).native(("self",))
    part = Part(2)
    part._modules["0"].owner = part
    assert tree.check(part)
    gone = weakref.ref(part)
    del part
    gc.collect()
    assert gone() is None
