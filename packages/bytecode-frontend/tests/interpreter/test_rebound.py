"""State of objects that no argument leads to (globals, closures, instances behind bound methods), which the program replaces by new objects:
captured anew once or twice, not at each call, and never stale."""

from __future__ import annotations

import collections
import types
from typing import Any, Callable

import pytest
import torch

from opmill_bytecode_frontend import capture


class State:
    pass


class Pair:
    def __init__(self, first: Any) -> None:
        self.first = first


def a_dictionary(s: Any, x: Any) -> Any:
    s.kept = {"n": s.kept["n"] if "n" in s.kept else 1, "t": x * 2}
    return x + s.kept["n"]


def an_object(s: Any, x: Any) -> Any:
    s.pair = Pair(s.pair.first + x)
    return s.pair.first * 2


def a_list(s: Any, x: Any) -> Any:
    s.last = [x, *s.last[:1]]
    return sum(s.last)


def an_ordered_dictionary(s: Any, x: Any) -> Any:
    s.ordered = collections.OrderedDict(x=s.ordered["x"] * 2)
    return x + s.ordered["x"]


def a_namespace(s: Any, x: Any) -> Any:
    s.space = types.SimpleNamespace(v=s.space.v + x)
    return s.space.v


def nested(s: Any, x: Any) -> Any:
    old = s.kept.get("in", {"k": [x]})
    s.kept = {"in": {"k": [old["k"][0] + x]}}
    return old["k"][0]


def a_deque(s: Any, x: Any) -> Any:
    s.queue = collections.deque([*s.queue][-2:], 5)
    s.queue.append(3)
    return x * len(s.queue)


def with_a_factory(s: Any, x: Any) -> Any:
    found = s.counts["steps"]
    s.counts = collections.defaultdict(float)
    s.counts["steps"] = found + 1 if not found else found
    return x + s.counts["steps"]


PROGRAMS = [a_dictionary, an_object, a_list, an_ordered_dictionary, a_namespace, nested, a_deque, with_a_factory]


def state() -> Any:
    made: Any = State()
    made.kept, made.pair, made.last, made.ordered = {}, Pair(torch.ones(2)), [], collections.OrderedDict(x=torch.ones(2))
    made.space, made.queue, made.counts = types.SimpleNamespace(v=torch.zeros(2)), collections.deque([1]), collections.defaultdict(float)
    return made


def counted(f: Any, whole: bool = True) -> tuple[Any, list[Any]]:
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    return capture(f, backend, fullgraph=whole), graphs


@pytest.mark.parametrize("program", PROGRAMS)
def test_new_objects_are_no_new_graphs(program: Callable[[Any, Any], Any]) -> None:
    def play(wrap: Any) -> list[str]:
        s = state()
        f = wrap(lambda x: program(s, x))
        return [
            repr((f(torch.full((2,), float(k))), {k: v if type(v) is not Pair else v.first for k, v in vars(s).items()})) for k in range(10)
        ]

    graphs: list[Any] = []

    def wrap(f: Any) -> Any:
        compiled, made = counted(f)
        graphs.append(made)
        return compiled

    assert play(wrap) == play(lambda f: f)
    assert len(graphs[0]) <= 5


def test_two_names_of_one_object_and_two_objects() -> None:
    s = state()

    def f(x: Any) -> Any:
        s.left.append(x * 2)
        return sum(s.right), len(s.left)

    compiled, _ = counted(f)
    for alike in (True, True, False, True, False, False, True):
        told = []
        for call in (f, compiled):
            s.left = [torch.ones(2)]
            s.right = s.left if alike else [torch.ones(2)]
            told.append(repr((call(torch.ones(2)), s.left, s.right)))
        assert told[0] == told[1]


def test_what_stands_in_it_is_looked_at() -> None:
    s = state()

    def f(x: Any) -> Any:
        return x * s.settings["scale"] if s.settings["on"] else x

    compiled, _ = counted(f)
    for on, scale in ((True, 2), (True, 2), (False, 2), (True, 3), (True, 5), (False, 1), (True, 2)):
        s.settings = {"on": on, "scale": scale}
        assert torch.equal(compiled(torch.ones(2)), f(torch.ones(2)))
    s.settings = {"on": True}
    with pytest.raises(KeyError, match="scale"):
        compiled(torch.ones(2))
    s.settings = Pair({"on": True})
    with pytest.raises(TypeError):
        compiled(torch.ones(2))


def test_identity_that_the_program_asks_for() -> None:
    s = state()
    kept = s.kept = {}

    def f(x: Any) -> Any:
        return x + 1 if s.kept is kept else x - 1 if s.kept is s.other else x

    s.other = {}
    compiled, _ = counted(f, whole=False)
    for now in (kept, {}, kept, s.other, {}, kept, s.other):
        s.kept = now
        assert torch.equal(compiled(torch.ones(2)), f(torch.ones(2)))


def test_nothing_replaced_is_kept_alive() -> None:
    import gc
    import weakref

    s = state()

    def f(x: Any) -> Any:
        return x + s.pair.first

    compiled, _ = counted(f)
    gone = []
    for k in range(6):
        s.pair = Pair(torch.full((2,), float(k)))
        gone.append(weakref.ref(s.pair))
        compiled(torch.ones(2))
    gc.collect()
    assert [r() is None for r in gone[2:-1]] == [True, True, True]
