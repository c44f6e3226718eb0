"""Copies, partials, dispatch, counting; numbers with attributes, names of arguments, iterators that go on, what methods may not give."""

from __future__ import annotations

import collections
import copy
import decimal
import fractions
import functools
import itertools
import operator
import types
import typing

import pytest
import torch
from differing import Blocked, Doubling, Plain, attempt, differs, generated, given, told

from opmill_bytecode_frontend import capture

# ---- copies, partials, dispatch, counting ------------------------------------------------------------------------------------------


def copied(x):
    f = functools.partial(given, ["a"], bar=[True])
    f.attr = []
    n = Plain(1, [2])
    c, d, m, e = copy.copy(f), copy.deepcopy(f), copy.copy(n), copy.deepcopy(n)
    kept = c.attr is f.attr, d.attr is f.attr, d.args[0] is f.args[0], d(1), m is n, m.b is n.b, e.b is n.b, type(e).__name__
    return kept, copy.deepcopy(Doubling(1, [2])), attempt(lambda: copy.deepcopy(types.MappingProxyType({}))), x + 1


def test_copies_of_tuples_and_partials():
    differs(copied, whole=False)


def dispatched(x):
    @functools.singledispatch
    def g(a):
        return "base"

    out = [g(1)]
    g.register(int, lambda a: "int")
    out += [g(1), g("s")]

    @g.register
    def _(a: list):
        return "list"

    return [*out, g([]), g.dispatch(float)(1)], x + 1


def test_functions_that_dispatch_know_what_was_registered_just_now():
    differs(dispatched, whole=False)


def deleted(x):
    def delete(owner, key):
        del owner[key]

    owners = ((1,), 0), ("ab", 0), (5, 0), (types.MappingProxyType({}), "a"), (Blocked(), 0), (Blocked(), "a"), ((1,), "q"), (range(3), 1)
    return [attempt(lambda o=o, k=k: delete(o, k)) for o, k in owners], x + 1


def test_what_has_no_items_to_delete_says_so_in_pythons_words():
    differs(deleted)


class Counting(dict):
    def get(self, key, default=None):
        return super().get(told(key), default)

    def __setitem__(self, key, value):
        super().__setitem__(told(key), value)


def counted(x):
    c = Counting()
    collections._count_elements(c, generated("a", "b", "a"))
    return dict(c), collections.Counter("aab"), x + 1


def test_counting_asks_mappings_of_the_program():
    differs(counted)


def numbers_of_many_classes(x):
    numbers = 1001, 1001.0, fractions.Fraction(2002, 2), decimal.Decimal("1001.0"), 1001 + 0j
    return [(a == b, a != b, attempt(lambda a=a, b=b: a < b)) for a in numbers for b in numbers], x + 1


def test_numbers_of_different_classes_compare():
    differs(numbers_of_many_classes, whole=False)


class Sized(typing.TypedDict):
    a: int


SHOWN = types.MappingProxyType(collections.ChainMap({"a": 1}, {"b": 2}))


def test_classes_whose_metaclass_makes_something_else():
    differs(lambda x: (type(Sized(a=1)) is dict, Sized(a=1), x + 1))
    differs(lambda x: (SHOWN.copy(), SHOWN["a"], x + 1), whole=False)


def final_classes(x):
    class Final:
        def __init_subclass__(cls):
            told([base is Final for base in cls.__bases__])

    class First(Final):
        pass

    class Second(First):
        pass

    return int | First == int | First, isinstance(Second(), int | Final), x + 1


def test_a_class_and_what_its_methods_say_of_it_are_one():
    differs(final_classes, whole=False)


# ---- numbers with attributes, names of arguments, generators that meet themselves --------------------------------------------------


class Foo(int):
    def __new__(cls, foo):
        self = int.__new__(cls, 3)
        self.foo = foo
        return self

    def __getnewargs__(self):
        return (self.foo,)


FOO = Foo([42])


def copied_numbers(x):
    made, copied = Foo([1]), copy.copy(FOO)
    return made.foo, type(made).__name__, copied.foo, type(copied).__name__, copied.foo is FOO.foo, operator.index(made), x + 1


def test_numbers_with_attributes_are_made_anew():
    differs(copied_numbers, whole=False)
    make = capture(lambda x: (Foo([1]), x + 1), "eager")
    assert make(torch.ones(1))[0] is not make(torch.ones(1))[0]


def named(x):
    parts = dict(self=1, vm=2), dict({}, vm=3), functools.partial(given, vm=1, self=2)(fn=3), collections.OrderedDict(vm=1, self=2)
    return *parts, types.SimpleNamespace(vm=3, self=1), collections.defaultdict(int, factory=3, vm=2), {}.update(self=2), x + 1


def test_arguments_may_have_any_name():
    differs(named)


def meets_itself(x):
    def one():
        yield 0
        yield from two()
        yield 3

    def two():
        yield 1
        try:
            yield from g
        except ValueError as e:
            told(str(e))
        yield 2

    g = one()
    stop = StopIteration("spam")
    stop.value = "eggs"
    return list(g), stop.value, stop.args, [].append.__qualname__, object().__lt__(1), x + 1


def test_a_generator_that_runs_refuses_to_be_asked():
    differs(meets_itself)


def on_a_literal(x):
    n = x.sum().tolist()
    return attempt(lambda: (3).foo), attempt(lambda: setattr(3, "foo", n)), n


def test_attributes_of_literals_between_graphs():
    differs(on_a_literal, whole=False)


def sometimes(v):
    if v == 2:
        raise ValueError(v)
    return v


GOING_ON = {
    "map": lambda: map(sometimes, [1, 2, 3]),
    "filter": lambda: filter(sometimes, [1, 2, 3]),
    "starmap": lambda: itertools.starmap(sometimes, [(1,), (2,), (3,)]),
    "zip": lambda: zip(map(sometimes, [1, 2, 3]), "abc"),
    "takewhile": lambda: itertools.takewhile(sometimes, [1, 2, 3]),
    "chain": lambda: itertools.chain(map(sometimes, [2, 3]), [5]),
    "enumerate": lambda: enumerate(map(sometimes, [1, 2, 3])),
}


@pytest.mark.parametrize("name", GOING_ON)
def test_iterators_go_on_after_an_error(name):
    def asked(x):
        items = GOING_ON[name]()
        return [attempt(lambda: next(items)) for _ in range(4)], x + 1

    differs(asked, whole=False)


def test_an_iterator_that_asks_itself():
    def f(x):
        items = map(lambda v: next(items, None) if v == 1 else v, [1, 2, 3])
        return list(items), x + 1

    differs(f, whole=False)


class Proxy:
    def __init__(self, of):
        self.__of = of

    def __getattribute__(self, name):
        return object.__getattribute__(self, name) if name.startswith("_Proxy__") else getattr(self.__of, name)


def proxies(x):
    p = Proxy([1])
    p.append(x.sum().tolist())
    return p.copy(), Proxy(3), x + 1


def test_proxies_cross_a_break():
    x = torch.ones(2)
    plain, compiled = proxies(x), capture(proxies, "eager")
    for _ in range(2):
        items, p, y = compiled(x)
        assert items == plain[0] and p.real == 3 and object.__getattribute__(p, "__class__") is Proxy and torch.equal(y, plain[2])


def what_classes_have(x):
    g = generated(1)
    asked = [
        ([], "__name__"),
        ({}, "__mro__"),
        ((1,), "__bases__"),
        (3, "__qualname__"),
        (slice(1), "__name__"),
        (functools.partial(max), "zz"),
        (g, "zz"),
    ]
    refused = [attempt(lambda o=o, n=n: getattr(o, n)) for o, n in asked]
    return refused, g.__name__, [].__class__.__name__, attempt(lambda: dict({}, {})), attempt(lambda: {}.update(1, 2)), x + 1


def test_objects_have_no_attributes_of_their_metaclass():
    differs(what_classes_have)


class Wrong:
    __len__ = lambda self: -1  # noqa: E731
    __bool__ = __str__ = __iter__ = lambda self: 3  # noqa: E731
    __repr__ = __float__ = lambda self: 4  # noqa: E731
    __hash__ = __int__ = lambda self: "a"  # noqa: E731
    __index__ = lambda self: 1.5  # noqa: E731
    __format__ = lambda self, spec: 5  # noqa: E731


def wrong(x):
    w = Wrong()
    asked = (
        lambda: len(w),
        lambda: bool(w),
        lambda: str(w),
        lambda: iter(w),
        lambda: repr(w),
        lambda: float(w),
        lambda: hash(w),
        lambda: int(w),
        lambda: [1][w],
        lambda: range(w),
        lambda: operator.index(w),
        lambda: f"{w}",
        lambda: {}.fromkeys(1),
        lambda: {w: 1},
    )
    return [attempt(f) for f in asked], x + 1


def test_methods_that_give_what_they_may_not():
    differs(wrong)


def test_class_methods_of_numbers_and_bytes():
    differs(
        lambda x: (
            float.fromhex("0x1p3"),
            int.from_bytes(b"\1\2", "big"),
            bytes.fromhex("00ff"),
            attempt(lambda: float.fromhex("z")),
            x + 1,
        )
    )


class Described:
    def __get__(self, instance, owner=None):
        return told(getattr(instance, "_v", 0))

    def __set__(self, instance, value):
        instance._v = told(value)

    def __delete__(self, instance):
        told("deleted")
        del instance._v


class Holder:
    __slots__ = ("__dict__", "slot")
    a = Described()


def deleting(x):
    h = Holder()
    h.a = 3
    h.slot = 4
    read = h.a, h.slot
    del h.a, h.slot

    def again():
        del h.slot

    return read, h.a, attempt(lambda: h.slot), attempt(again), x + 1


def test_deletion_through_descriptors():
    differs(deleting)


# ---- tensors and generators -------------------------------------------------------------------------------------------------------


def with_parts(grad):
    t = torch.ones(2)
    t.tag = [3]
    t.grad = torch.ones(2) if grad else None
    return t


@pytest.mark.parametrize("grad", [False, True])
def test_a_deep_copy_of_a_tensor_has_what_was_put_on_it(grad):
    def f(t, x):
        made = copy.deepcopy(t)
        other = copy.deepcopy([t, t])
        t.tag.append(4)
        return vars(made), made.grad, other[0] is other[1], vars(other[0]), vars(copy.copy(t)), x + made

    captured = capture(f, "eager")
    for _ in range(2):
        assert str(captured(with_parts(grad), torch.ones(2))) == str(f(with_parts(grad), torch.ones(2)))


def test_a_tensor_gets_a_gradient_before_it_is_copied():
    def f(t, x):
        return copy.deepcopy(t).grad, x + 1

    captured, t = capture(f, "eager"), torch.ones(2)
    assert captured(t, torch.ones(2))[0] is None
    t.grad = torch.ones(2)
    assert torch.equal(captured(t, torch.ones(2))[0], t.grad)


def test_a_deep_copy_of_a_generator_goes_on_by_itself():
    def f(generator, x):
        made = copy.deepcopy(generator)
        return made is generator, torch.rand(2, generator=generator), made.get_state(), x + 1

    first, second = (g(torch.Generator().manual_seed(3), torch.ones(1)) for g in (f, capture(f, "eager")))
    assert first[0] is second[0] is False
    assert torch.equal(first[1], second[1]) and torch.equal(first[2], second[2])


class SaysHow:
    def __init__(self):
        self.items = [1]

    def __deepcopy__(self, memo):
        made = memo[id(self)] = SaysHow()
        made.items = [*self.items, 2]
        return made


def test_an_object_that_says_how_is_copied_once():
    def f(x):
        o = SaysHow()
        first, second, third = copy.deepcopy([o, {"a": o}, (o,)])
        return first is second["a"] is third[0], first is o, first.items, x + 1

    assert str(capture(f, "eager", fullgraph=True)(torch.ones(1))) == str(f(torch.ones(1)))
