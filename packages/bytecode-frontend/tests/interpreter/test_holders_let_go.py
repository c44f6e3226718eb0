"""What a program hands to compiled code dies when the program lets go of it: a table of what holds an object and of what is done with it."""

from __future__ import annotations

import collections
import functools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

Access = Callable[[Any], Any]
Made = tuple[Any, Access]


class Thing:
    def __init__(self, value: int = 1) -> None:
        self.value = value

    def method(self) -> int:
        return self.value

    def __call__(self) -> int:
        return self.value


class Equal(Thing):
    """One that is equal to others, and hashes as they do."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


class Holder:
    held: Any


class OwnDict(dict[str, Any]):
    pass


@torch.compiler.disable
def opaque(*args: object) -> None: ...


def attribute(o: Any) -> Made:
    holder = Holder()
    holder.held = o
    return holder, lambda c: c.held


def cell(o: Any) -> Made:
    def function() -> Any:
        return o

    return function, lambda c: c()


def default(o: Any) -> Made:
    def function(a: Any = o) -> Any:
        return a

    return function, lambda c: c()


def named_default(o: Any) -> Made:
    def function(*, a: Any = o) -> Any:
        return a

    return function, lambda c: c()


def generator(o: Any) -> Made:
    def twice() -> Iterator[Any]:
        yield o
        yield o

    return twice(), lambda c: next(c)


HOLDERS: dict[str, Callable[[Any], Made]] = {
    "argument": lambda o: (o, lambda c: c),
    "key": lambda o: ({o: 1}, lambda c: next(iter(c))),
    "value": lambda o: ({"k": o}, lambda c: c["k"]),
    "list": lambda o: ([o], lambda c: c[0]),
    "tuple": lambda o: ((o,), lambda c: c[0]),
    "set": lambda o: ({o}, lambda c: next(iter(c))),
    "frozenset": lambda o: (frozenset([o]), lambda c: next(iter(c))),
    "deque": lambda o: (collections.deque([o]), lambda c: c[0]),
    "nested": lambda o: ({"a": [(o,)]}, lambda c: c["a"][0][0]),
    "values": lambda o: ({"k": o}.values(), lambda c: next(iter(c))),
    "keys": lambda o: ({o: 1}.keys(), lambda c: next(iter(c))),
    "items": lambda o: ({o: 1}.items(), lambda c: next(iter(c))[0]),
    "iterator": lambda o: (iter([o, o]), lambda c: next(c)),
    "map": lambda o: (map(lambda v: v, [o, o]), lambda c: next(c)),
    "proxy": lambda o: (types.MappingProxyType({"k": o}), lambda c: c["k"]),
    "proxy of keys": lambda o: (types.MappingProxyType({o: 1}), lambda c: next(iter(c))),
    "ordered": lambda o: (collections.OrderedDict(k=o), lambda c: c["k"]),
    "default dict": lambda o: (collections.defaultdict(list, k=o), lambda c: c["k"]),
    "own dict": lambda o: (OwnDict(k=o), lambda c: c["k"]),
    "bound method": lambda o: (o.method, lambda c: c.__self__),
    "partial": lambda o: (functools.partial(lambda v: v, o), lambda c: c()),
    "partial named": lambda o: (functools.partial(lambda *, v: v, v=o), lambda c: c()),
    "namespace": lambda o: (types.SimpleNamespace(a=o), lambda c: c.a),
    "exception": lambda o: (ValueError(o), lambda c: c.args[0]),
    **{made.__name__: made for made in (attribute, cell, default, named_default, generator)},
}
Use = Callable[[Any, torch.Tensor], Any]
#: What is done with an object that has its identity for its hash, and with one that is asked.
USES: dict[str, Use] = {
    "read": lambda o, x: x + o.value,
    "method": lambda o, x: x + o.method(),
    "is None": lambda o, x: x + (1 if o is None else 2),
    "isinstance": lambda o, x: x + (1 if isinstance(o, Thing) else 2),
    "is itself": lambda o, x: x + (1 if o is o else 2),  # noqa: PLR0124
    "opaque": lambda o, x: (opaque(o), x + 1)[1],
    "call": lambda o, x: x + o(),
    "name of class": lambda o, x: x + len(type(o).__name__),
    "getattr": lambda o, x: x + getattr(o, "value", 3),
    "hasattr": lambda o, x: x + (1 if hasattr(o, "nope") else 2),
    "write": lambda o, x: (setattr(o, "written", 2), x + o.written)[1],
    "return": lambda o, x: (o, x + 1),
    "weak reference": lambda o, x: (weakref.ref(o), x + 1)[1],
    "store": lambda o, x: ([o, o], x + 1),
    "truth": lambda o, x: x + (1 if o else 2),
}
USES_OF_BOTH: dict[str, Use] = {
    "equal": lambda o, x: x + (1 if o == 5 else 2),
    "hash": lambda o, x: x + len({o: 1}),
    "in": lambda o, x: x + (1 if o in [None, o] else 2),
    "id": lambda o, x: x + (1 if id(o) else 2),
    "set": lambda o, x: x + len({o, None}),
}
TABLE = [(Thing, USES | USES_OF_BOTH), (Equal, {"read": USES["read"], **USES_OF_BOTH})]


def survivors(cls: type[Thing], make: Callable[[Any], Made], use: Use) -> int:
    """How many objects live on after calls with one each: one that the program has a weak reference to meanwhile, and two that it has not."""
    access = make(cls())[1]

    def f(c: Any, x: torch.Tensor) -> Any:
        return use(access(c), x)

    compiled = capture(f, "eager")
    told = []
    for early in (True, False, False):
        o = cls()
        held = make(o)[0]
        told += [weakref.ref(o)] if early else []
        found, wanted = compiled(held, torch.ones(2)), f(make(o)[0], torch.ones(2))
        told += [] if early else [weakref.ref(o)]
        tensors = [each[-1] if isinstance(each, tuple) else each for each in (found, wanted)]
        assert torch.equal(*tensors)
        del o, held, found, wanted
    return sum(each() is not None for each in told)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("holder", HOLDERS)
def test_objects_die_with_what_holds_them(holder: str, no_collector: None) -> None:
    alive = {f"{cls.__name__} {name}": survivors(cls, HOLDERS[holder], use) for cls, uses in TABLE for name, use in uses.items()}
    assert not {name: number for name, number in alive.items() if number}
