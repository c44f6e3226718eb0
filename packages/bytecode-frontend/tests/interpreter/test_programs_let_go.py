"""Programs that let go of what they handed to compiled code, or had it find: it dies at once, but for a few things with a reason."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import functools
import gc
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

X = torch.ones(2)
TURNS = 3
Told = list["weakref.ref[Any]"]
Program = Callable[[], tuple[Any, Told]]
PROGRAMS: dict[str, Program] = {}
#: What outlives the program's last reference to it, until the compiled code goes, and why.
KEPT = {
    "a hash of what has slots alone": "its identity is asked, and no weak reference to it can be had",
    "an id of a list": "its identity is asked, and no weak reference to it can be had",
    "an attribute of a number of its own": "numbers of classes derived from int cannot be referred to weakly",
    "a class": "generated code reaches classes; the guards of one are about the class itself",
    "a default that is replaced": "the generated function has the defaults that the function had",
}


class Thing:
    value = 1

    def method(self) -> int:
        return self.value


@torch.compiler.disable
def opaque(*args: object) -> None: ...


def program(made: Program) -> Program:
    PROGRAMS[made.__name__.replace("_", " ")] = made
    return made


def called(fn: Callable[..., Any], make: Callable[[], tuple[list[Any], list[Any]]], **options: Any) -> tuple[Any, Told]:
    """The compiled function, called with arguments made for each call, whatever it raises; and what is to die then. Half of the objects are
    referred to while it runs."""
    compiled, told = capture(fn, options.pop("backend", "eager"), **options), []
    for turn in range(TURNS):
        args, mortal = make()
        told += [weakref.ref(each) for each in mortal] if turn == 0 else []
        with contextlib.suppress(Exception):
            compiled(*args)
        told += [weakref.ref(each) for each in mortal] if turn else []
        del args, mortal
    return compiled, told


def with_thing(fn: Callable[..., Any], **options: Any) -> tuple[Any, Told]:
    def make() -> tuple[list[Any], list[Any]]:
        o = Thing()
        return [o, X], [o]

    return called(fn, make, **options)


def fails(o: Any, x: Any) -> Any:
    if x is not None:
        raise ValueError(o.value)


def raises_what_has_it(o: Any, x: Any) -> Any:
    error = ValueError(x + 1)
    error.o = o  # type: ignore[attr-defined]
    raise error


def catches_what_has_it(o: Any, x: Any) -> Any:
    try:
        raise ValueError(o)
    except ValueError as error:
        return x + error.args[0].value


def fails_in_an_operator(o: Any, x: Any) -> Any:
    return (x + o.value) @ torch.ones(3, 3)


def breaks(o: Any, x: Any) -> Any:
    opaque(o)
    y = x + o.value
    opaque(o, y)
    return y + o.value


def gives_a_function(o: Any, x: Any) -> Any:
    return (lambda: o), x + 1


def leaves_a_generator(o: Any, x: Any) -> Any:
    def values() -> Iterator[Any]:
        yield o.value
        yield 2

    it = values()
    y = x + next(it)
    opaque(1)
    return y


for each in (fails, raises_what_has_it, catches_what_has_it, fails_in_an_operator, breaks, gives_a_function, leaves_a_generator):
    PROGRAMS[each.__name__.replace("_", " ")] = functools.partial(with_thing, each)
PROGRAMS["is refused"] = functools.partial(with_thing, breaks, fullgraph=True)


@program
def a_loop_with_breaks() -> tuple[Any, Told]:
    def fn(things: list[Any], x: Any) -> Any:
        for o in things:
            opaque(o)
            x = x + o.value
        return x

    def make() -> tuple[list[Any], list[Any]]:
        things = [Thing(), Thing()]
        return [things, X], list(things)

    return called(fn, make)


@program
def functions_made_anew() -> tuple[Any, Told]:
    def fn(g: Any, table: Any, x: Any) -> Any:
        table["g"] = g
        return g, x + g()

    def make() -> tuple[list[Any], list[Any]]:
        o = Thing()

        def g() -> int:
            return o.value

        return [g, {}, X], [o, g]

    return called(fn, make)


def arguments(fn: Callable[..., Any], made: Callable[[], tuple[list[Any], list[Any]]]) -> Program:
    return lambda: called(fn, made)


def tensors(**options: Any) -> Program:
    def make() -> tuple[list[Any], list[Any]]:
        sizes[0] += 1
        both = [torch.ones(sizes[0], requires_grad=True), torch.ones(sizes[0])]
        return both, list(both)

    sizes = [2]
    return lambda: called(lambda a, x: (a * x).sum(), make, **options)


for name, options in {"eager": {}, "dynamic": {"dynamic": True}}.items():
    for backend in ("eager", lambda gm, inputs: gm.forward):
        PROGRAMS[f"tensors, {name}, {backend if backend == 'eager' else 'a callable'}"] = tensors(backend=backend, **options)


def module() -> tuple[list[Any], list[Any]]:
    o, m = Thing(), torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())

    def hook(module: Any, args: Any, result: Any) -> Any:
        return result + o.value

    m[0].register_forward_hook(hook)
    return [m, X], [m, m[0], m[0].weight, o, hook]


def stored_method() -> tuple[list[Any], list[Any]]:
    o = Thing()
    return [{"call": o.method}, X], [o]


def tuple_of_keys() -> tuple[list[Any], list[Any]]:
    o = Thing()
    return [{(o, 1): 2}, X], [o]


def method_as_key() -> tuple[list[Any], list[Any]]:
    o = Thing()
    return [{o.method: 2}, X], [o]


def two_lists() -> tuple[list[Any], list[Any]]:
    one, two = [Thing()], [Thing()]
    return [one, two, X], [one[0], two[0]]


class Slots:
    __slots__ = ("held",)
    held: Any


class Number(int):
    held: Any


def with_held(made: Any) -> tuple[list[Any], list[Any]]:
    made.held = Thing()
    return [made, X], [made.held]


def of_a_class() -> tuple[list[Any], list[Any]]:
    class Local:
        value = 1

    return [Local(), X], [Local]


PROGRAMS |= {
    "a module with a hook": arguments(lambda m, x: m(x), module),
    "a method in a table": arguments(lambda d, x: x + d["call"](), stored_method),
    "keys that are tuples": arguments(lambda d, x: x + sum(len(k) for k in d), tuple_of_keys),
    "keys that are methods": arguments(lambda d, x: x + sum(k() for k in d), method_as_key),
    "whether lists are one": arguments(lambda a, b, x: x + (1 if a is b else 2), two_lists),
    "a hash of what has slots alone": arguments(lambda a, x: x + len({a: 1}), lambda: with_held(Slots())),
    "an id of a list": arguments(lambda a, x: x + (id(a) == 3), lambda: (lambda o: ([[o], X], [o]))(Thing())),
    "an attribute of a number of its own": arguments(lambda a, x: x + a, lambda: with_held(Number(3))),
    "a class": arguments(lambda o, x: x + o.value, of_a_class),
}
CONTAINERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "object": (lambda o: o, "G"),
    "list": (lambda o: [o], "G[0]"),
    "dict": (lambda o: {"a": o}, "G['a']"),
    "tuple": (lambda o: (o,), "G[0]"),
    "namespace": (lambda o: types.SimpleNamespace(a=o), "G.a"),
    "deque": (lambda o: collections.deque([o]), "G[0]"),
    "set": (lambda o: {o}, "next(iter(G))"),
    "partial": (lambda o: functools.partial(id, o), "G.args[0]"),
    "proxy": (lambda o: types.MappingProxyType({"a": o}), "G['a']"),
    "key": (lambda o: {o: 1}, "next(iter(G))"),
}
PLACES = {
    "global": "def fn(x): return x + ({read}).value\ndef put(o):\n global G; G = o\ndef drop():\n global G; del G",
    "free": "def make():\n G = None\n def fn(x): return x + ({read}).value\n def put(o):\n  nonlocal G; G = o\n def drop():\n"
    "  nonlocal G; del G\n return fn, put, drop\nfn, put, drop = make()",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("container", CONTAINERS)
def test_what_variables_held(container: str, place: str, no_collector: None) -> None:
    make, read = CONTAINERS[container]
    names: dict[str, Any] = {"__name__": "program"}
    exec(PLACES[place].format(read=read), names)
    compiled, told = capture(names["fn"], "eager"), []
    for _ in range(TURNS):
        o = Thing()
        names["put"](make(o))
        assert torch.equal(compiled(X), X + 1)
        told.append(weakref.ref(o))
        del o
        names["drop"]()
    assert [each() for each in told] == [None] * TURNS


@program
def what_a_context_had() -> tuple[Any, Told]:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")
    compiled, told = capture(lambda x: x + variable.get().value, "eager"), []

    def run() -> None:
        variable.set(Thing())
        compiled(X)
        told.append(weakref.ref(variable.get()))

    for _ in range(TURNS):
        contextvars.Context().run(run)
    return compiled, told


@program
def what_a_thread_had() -> tuple[Any, Told]:
    own = threading.local()
    compiled, told = capture(lambda x: x + own.o.value, "eager"), []
    for _ in range(TURNS):
        own.o = Thing()
        compiled(X)
        told.append(weakref.ref(own.o))
        del own.o
    return compiled, told


@program
def what_weak_tables_have() -> tuple[Any, Told]:
    by_key: Any = weakref.WeakKeyDictionary()
    by_value: Any = weakref.WeakValueDictionary()
    compiled, told = capture(lambda o, x: x + by_key[o] + by_value["a"].value, "eager"), []
    for _ in range(TURNS):
        o = Thing()
        by_key[o], by_value["a"] = 2, o
        compiled(o, X)
        told.append(weakref.ref(o))
        del o
    return compiled, told


@program
def items_of_a_global_table() -> tuple[Any, Told]:
    table: dict[Any, Any] = {}
    compiled, told = capture(lambda x: x + sum(k.value + v.value for k, v in table.items()), "eager"), []
    for _ in range(TURNS):
        o = Thing()
        table[o] = o
        compiled(X)
        told.append(weakref.ref(o))
        del o
        table.clear()
    return compiled, told


@program
def a_default_that_is_replaced() -> tuple[Any, Told]:
    kept, told = [], []
    for _ in range(TURNS):
        o = Thing()

        def fn(x: Any, o: Any = o) -> Any:
            return x + o.value

        kept.append(capture(fn, "eager"))
        kept[-1](X)
        told.append(weakref.ref(o))
        fn.__defaults__ = (None,)
        del o
    return kept, told


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_let_go_of(name: str, no_collector: None) -> None:
    compiled, told = PROGRAMS[name]()
    if name in KEPT:
        gc.collect()  # not even then
    alive = [each() for each in told if each() is not None]
    assert bool(alive) is (name in KEPT), alive
    del compiled, alive
