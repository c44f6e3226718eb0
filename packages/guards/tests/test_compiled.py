"""The dispatching callable: binding, hits and misses, looks of the function, threads, life."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
import threading
import types
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_guards import CompiledFunction, GuardSet, Shown, TailCall, finish
from opmill_guards.guard import Equals, Predicate, TypeIs
from opmill_guards.source import Local


def no_miss(compiled: Any, args: Any, kwargs: Any) -> Any:
    raise AssertionError(f"missed: {args} {kwargs}")


def positional(a, b=2):  # type: ignore[no-untyped-def]
    """Adds."""
    return "f", a, b


def only(a, /, b, *, c=3, d):  # type: ignore[no-untyped-def]
    return "f", a, b, c, d


def star(a, *rest, k=1, **named):  # type: ignore[no-untyped-def]
    return "f", a, k, rest, named


def same_name(a, /, **named):  # type: ignore[no-untyped-def]
    return "f", a, named


def nothing():  # type: ignore[no-untyped-def]
    return "f"


FUNCTIONS = [positional, only, star, same_name, nothing]
ARGUMENTS = st.tuples(
    st.lists(st.integers(0, 3), max_size=4).map(tuple), st.dictionaries(st.sampled_from("abcdkz"), st.integers(4, 9), max_size=4)
)


@settings(derandomize=True, max_examples=400, deadline=None)
@given(st.sampled_from(FUNCTIONS), ARGUMENTS)
def test_binds_as_python_does(function: Any, arguments: Any) -> None:
    args, kwargs = arguments
    compiled = CompiledFunction(function, no_miss)
    try:
        answer = function(*args, **kwargs)
    except TypeError as error:
        with pytest.raises(TypeError):
            compiled.bind(args, kwargs)
        with pytest.raises(TypeError) as ours:
            compiled(*args, **kwargs)
        assert str(ours.value) == str(error)
        return
    expected = [] if answer == "f" else list(answer[1:])
    bound = compiled.bind(args, kwargs)
    assert list(bound.values()) == expected
    seen = []
    guards = [Predicate(Local(name), lambda value: seen.append(value) or True, name) for name in bound]
    compiled.insert(GuardSet(guards), lambda *a, **k: (a, k))
    assert compiled(*args, **kwargs) == (args, kwargs)
    assert seen == expected


def test_misses_and_hits() -> None:
    calls = []

    def on_miss(compiled: Any, args: Any, kwargs: Any) -> Any:
        calls.append((args, kwargs))
        value = compiled.bind(args, kwargs)["a"]
        compiled.insert(GuardSet([Equals(Local("a"), value)]), lambda a, b=0: (value, a, b))
        return compiled.entries[-1].target

    compiled = CompiledFunction(positional, on_miss)
    assert compiled(1) == (1, 1, 0)
    assert compiled(1, b=5) == (1, 1, 5)
    assert compiled(2) == (2, 2, 0)
    assert compiled(a=1) == (1, 1, 0)
    assert compiled(a=2, b=1) == (2, 2, 1)
    assert calls == [((1,), {}), ((2,), {})]
    assert [entry.hits for entry in compiled.entries] == [2, 1]
    failures = compiled.explain_miss((7,), {})
    assert [str(failure) for failure in failures] == ["a: expected 1, found 7", "a: expected 2, found 7"]
    assert compiled.remove(compiled.entries[0]) is True
    compiled(1)
    assert len(calls) == 3
    compiled.clear()
    assert compiled.entries == ()
    compiled.disabled = True
    assert compiled(1) == ("f", 1, 2)


def test_defaults_changed_later() -> None:
    def function(a: int = 1) -> int:
        return a

    compiled = CompiledFunction(function, lambda c, a, k: lambda *x: "miss")
    compiled.insert(GuardSet([Equals(Local("a"), 1)]), lambda *x: "hit")
    assert compiled() == "hit"
    function.__defaults__ = (2,)
    assert compiled() == "miss"


def test_errors_pass() -> None:
    def on_miss(compiled: Any, args: Any, kwargs: Any) -> Any:
        raise KeyError("compiler")

    compiled = CompiledFunction(positional, on_miss)
    with pytest.raises(KeyError, match="compiler"):
        compiled(1)
    compiled.insert(GuardSet([]), lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        compiled(1)
    with pytest.raises(TypeError, match="callable"):
        compiled.insert(GuardSet([]), 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        CompiledFunction(len, on_miss)
    with pytest.raises(TypeError, match="on_miss"):
        CompiledFunction(positional, 3)  # type: ignore[arg-type]


module_level = CompiledFunction(positional, no_miss)
original = positional


def test_looks_like_the_function() -> None:
    compiled = CompiledFunction(original, no_miss)
    assert compiled.__name__ == "positional" and compiled.__doc__ == "Adds." and compiled.__module__ == __name__
    assert compiled.__qualname__ == "positional" and compiled.__wrapped__ is original and compiled.__code__ is original.__code__
    assert inspect.signature(compiled) == inspect.signature(original)
    compiled.note = 1
    assert compiled.note == 1 and not hasattr(original, "note")
    assert copy.deepcopy(compiled) is compiled and copy.copy(compiled) is compiled
    assert weakref.ref(compiled)() is compiled
    assert "positional" in repr(compiled)


def test_pickles_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "positional", module_level)
    assert pickle.loads(pickle.dumps(module_level)) is module_level


def test_methods() -> None:
    class C:
        def method(self, x: int) -> Any:
            return "f", self, x

    plain = C.__dict__["method"]
    compiled = CompiledFunction(plain, no_miss)
    C.method = compiled  # type: ignore[method-assign,assignment]
    compiled.insert(GuardSet([TypeIs(Local("self"), C), Equals(Local("x"), 1)]), lambda self, x: ("hit", self, x))
    c = C()
    assert c.method(1) == ("hit", c, 1)
    assert C.method(c, 1) == ("hit", c, 1)
    assert C.method is compiled and c.method.__func__ is compiled  # type: ignore[comparison-overlap,attr-defined]
    assert types.MethodType(compiled, c)(x=1) == ("hit", c, 1)


def test_the_most_recent_hit_is_looked_at_first() -> None:
    looked: list[int] = []
    compiled = CompiledFunction(positional, no_miss)
    for number in range(3):
        guards = GuardSet([Predicate(Local("a"), lambda a, n=number: looked.append(n) or a == n, str(number))])
        compiled.insert(guards, lambda a, n=number: n)
    for value, order in [(0, [2, 0]), (0, [0]), (1, [0, 1]), (2, [1, 0, 2]), (2, [2])]:
        looked.clear()
        assert compiled(value) == value and looked == order


def test_entries_may_go_while_they_are_checked_or_run() -> None:
    compiled = CompiledFunction(positional, no_miss)

    def vanish(value: Any) -> bool:
        compiled.clear()
        gc.collect()
        return True

    compiled.insert(GuardSet([Predicate(Local("a"), vanish, "vanish")]), lambda a: ("ran", a))
    assert compiled(1) == ("ran", 1)
    assert compiled.entries == ()


def test_recursion() -> None:
    def countdown(n: int) -> int:
        return 0

    compiled = CompiledFunction(countdown, no_miss)
    compiled.insert(GuardSet([TypeIs(Local("n"), int)]), lambda n: 0 if n == 0 else 1 + compiled(n - 1))
    assert compiled(100) == 100


def test_threads() -> None:
    misses = []

    def on_miss(compiled: Any, args: Any, kwargs: Any) -> Any:
        misses.append(args[0])
        value = args[0]
        compiled.insert(GuardSet([Equals(Local("a"), value)]), lambda a, v=value: v)
        return lambda a: a

    compiled = CompiledFunction(positional, on_miss)
    wrong = []

    def work(seed: int) -> None:
        for i in range(3000):
            value = (i * seed) % 7
            if compiled(value) != value:
                wrong.append(value)
            if i % 101 == 0 and compiled.entries:
                compiled.remove(compiled.entries[0])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong and misses


def test_calls_leak_nothing() -> None:
    compiled = CompiledFunction(star, lambda c, a, k: lambda *x, **y: None)
    compiled.insert(GuardSet([Equals(Local("k"), 1)]), lambda *x, **y: None)
    value = object()
    held = [value, compiled, compiled.entries[0], compiled.entries[0].target, star]
    before = [sys.getrefcount(item) for item in held]
    for _ in range(500):
        compiled(value, value, z=value)
        compiled(value, k=2, z=value)
        compiled.bind((value,), {"z": value})
        with pytest.raises(TypeError):
            compiled()
    assert [sys.getrefcount(item) for item in held] == before


def test_cycles_are_collected() -> None:
    def make() -> weakref.ref[Any]:
        def function(a: Any) -> Any:
            return a

        compiled = CompiledFunction(function, no_miss)
        compiled.me = compiled
        compiled.insert(GuardSet([TypeIs(Local("a"), int)]), lambda a: compiled)
        return weakref.ref(compiled)

    reference = make()
    gc.collect()
    assert reference() is None


def counting_down(compiled: Any) -> Any:
    def target(n: int, frames: list[int]) -> Any:
        frame, depth = sys._getframe(), 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
        frames.append(depth)
        if n < 0:
            raise ValueError("below")
        return TailCall(compiled[0], n - 1, frames) if n else "done"

    return target


def test_tail_calls_neither_nest_nor_show_in_tracebacks() -> None:
    def start(n, frames):  # type: ignore[no-untyped-def]
        raise AssertionError

    later: list[Any] = []
    target = counting_down(later)
    later.append(CompiledFunction(start, lambda *_: target, tail=True))
    first = CompiledFunction(start, lambda *_: target)
    frames: list[int] = []
    assert first(3000, frames) == "done"
    assert len(frames) == 3001 and len(set(frames)) == 1
    assert isinstance(later[0](1, []), TailCall) and finish(later[0](5, [])) == "done"

    def endless(n, frames):  # type: ignore[no-untyped-def]
        return TailCall(later[0], -1, frames)

    with pytest.raises(ValueError) as caught:
        CompiledFunction(start, lambda *_: endless)(0, [])
    assert [entry.name for entry in caught.traceback][1:] == ["target"]
    with pytest.raises(TypeError):
        TailCall()  # type: ignore[call-arg]


def test_what_a_tail_call_was_given_goes_in_order() -> None:
    gone: list[int] = []

    class Tells:
        def __init__(self, number: int) -> None:
            self.number = number

        def __del__(self) -> None:
            gone.append(self.number)

    finish(TailCall(lambda *args: gone.append(len(args)), *map(Tells, range(4))))
    assert gone == [4, 0, 1, 2, 3]


def test_a_tail_call_lets_go_of_what_it_holds_when_it_is_called() -> None:
    class Held:
        pass

    def second(given: list[Held]) -> bool:
        given.pop()
        return known() is None

    held = Held()
    known, begun = weakref.ref(held), TailCall(lambda it: TailCall(second, [it]), held)
    del held
    assert finish(begun), "though its giver holds the call"
    with pytest.raises(RuntimeError, match="once"):
        finish(begun)


def test_tail_calls_are_collected() -> None:
    class Thing:
        pass

    thing: Any = Thing()
    thing.tail = TailCall(print, thing)
    gone = weakref.ref(thing)
    del thing
    gc.collect()
    assert gone() is None


def test_a_slot_that_is_shown_as_a_function_is_called_as_what_it_holds() -> None:
    class Held:
        __slots__ = ("__call__", "__weakref__")

    def shown(self, *args):
        raise AssertionError

    slot = Held.__dict__["__call__"]
    Held.__call__ = Shown(slot, shown)
    held = Held()
    with pytest.raises(AttributeError):
        held.__call__  # noqa: B018
    held.__call__ = lambda x: x + 1
    assert held(2) == held.__call__(2) == slot.__get__(held)(2) == 3
    assert Held.__call__ is shown
    with pytest.raises(TypeError):
        Shown(shown, shown)
    gone = weakref.ref(shown)
    del Held, held, slot, shown
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, TypeError])
def test_only_errors_count_as_a_guard_that_does_not_hold(error: type[BaseException]) -> None:
    raising = True

    def check(value: object) -> bool:
        if raising:
            raise error
        return True

    compiled = CompiledFunction(positional, lambda c, a, k: lambda *_: "miss")
    guards = GuardSet([Predicate(Local("a"), check, "holds")])
    compiled.insert(guards, lambda *_: "hit")
    tree = guards.native(("a", "b"))
    if issubclass(error, Exception):
        assert compiled(1) == "miss"
        assert not tree.check(1, 2)
        assert compiled.find((1,), {}) is None
    else:
        for asked in (lambda: compiled(1), lambda: tree.check(1, 2), lambda: tree.load(1, 2), lambda: compiled.find((1,), {})):
            with pytest.raises(error):
                asked()
    raising = False
    assert compiled(1) == "hit"
