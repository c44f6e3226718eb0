"""The standard library in captured code."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import itertools
import operator
import random
import re
import types
import typing
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opmill_bytecode_frontend import Unsupported, capture


@functools.singledispatch
def kind(x: Any) -> str:
    return "object"


@kind.register
def _(x: int) -> str:
    return "int"


@kind.register(torch.Tensor)
def _(x: Any) -> str:
    return "tensor"


class Cached:
    def __init__(self, a):
        self.a = a
        self.n = 0

    @functools.cached_property
    def doubled(self):
        self.n += 1
        return self.a * 2


class Method:
    def f(self, x, y):
        return x * y

    g = functools.partialmethod(f, 3)


OWNER = Cached(2)


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, *exc):
        self.log.append(("out", exc[0]))
        return exc[0] is ValueError


def strings(a, b):
    m = re.match(r"(\w)(\d)", "a1")
    return "ab".translate(str.maketrans("a", "z")), re.sub(r"\d+", "N", "a12b"), m.group(2), f"{1}{[2][0]}", "%s-%d" % ("a", 3), a + 1  # noqa: UP031


def counters(a, b):
    c = collections.Counter("abca")
    c["z"] += 2
    c.update("aa")
    return c, c.most_common(1), sorted(c.elements()), c["none"], c + collections.Counter("b"), a * c["a"]


def chain_maps(a, b):
    m = collections.ChainMap({"a": 1}, {"b": a})
    return m["b"] * 2, m.get("c"), len(m), list(m)


def deques(a, b):
    d = collections.deque([1, 2, 3], maxlen=3)
    d.append(4)
    d.rotate(1)
    d.extendleft([8, 9])
    return d, d.popleft(), a * d[0]


def iterators(a, b):
    groups = [(k, list(g)) for k, g in itertools.groupby([1, 1, 2, 1])]
    left, right = itertools.tee(iter([1, 2, 3]))
    partly = [next(g) for _, g in itertools.groupby([3, 3, 4], key=lambda x: x % 2)]
    pairs = [next(left), next(left), *right, *left]
    rest = list(itertools.filterfalse(lambda x: x % 2, range(5))), list(itertools.compress("abc", [1, 0, 1]))
    more = list(itertools.combinations_with_replacement([1, 2], 2)), list(itertools.chain.from_iterable([[1], [2]]))
    return groups, partly, pairs, rest, more, sum(itertools.accumulate([a, b], operator.mul))


def operators(a, b):
    d = {"a": 1}
    operator.delitem(d, "a")
    return (
        operator.concat([1], [2]),
        operator.is_not(a, None),
        operator.countOf([1, 1], 1),
        operator.indexOf([1, 2], 2),
        d,
        operator.length_hint([1]),
        a * 2,
    )


def functions(a, b):
    c = Cached(a)
    first, second = c.doubled, c.doubled
    ordered = sorted([3, 1, 2], key=functools.cmp_to_key(lambda x, y: y - x))
    return kind(3), kind(a), kind("s"), first is second, c.n, Method().g(a), ordered


def contexts(a, b):
    log = []
    with Manager(log), contextlib.nullcontext(3) as n:
        x = a * n
        raise ValueError("swallowed")
    with contextlib.suppress(KeyError):
        {}["q"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(Manager(log))
        stack.callback(log.append, "callback")
        y = a + 1
    return x, y, log, n


def namespaces(a, b):
    n = types.SimpleNamespace(x=a, y=1)
    n.z = 2
    return n.x * 2, n.z, vars(n)["y"], n


def copies(a, b):
    inner = [1, {"z": 2}]
    deep = copy.deepcopy({"q": inner, "again": inner, "t": (1, 2), "x": a})
    cached = copy.copy(Cached(a))
    shallow = copy.copy([a, inner])
    inner.append(9)
    return deep, deep["q"] is deep["again"], shallow, cached.a is a, copy.deepcopy(Cached(3)).a


def weak(a, b):
    r = weakref.ref(OWNER)
    return r() is OWNER, r().a * a


def types_at_run_time(a, b):
    return typing.get_args(typing.Optional[int]), typing.cast(int, "a"), list[int], a + 1  # noqa: UP045


PROGRAMS = [
    strings, counters, chain_maps, deques, iterators, operators, functions, contexts, namespaces, copies, weak, types_at_run_time,
]  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_program(fn, check):
    check(fn)


def test_cached_property_of_an_existing_object_is_stored_there():
    def f(c):
        return c.doubled + 1

    plain, captured = Cached(torch.ones(2)), Cached(torch.ones(2))
    compiled = capture(f, fullgraph=True)
    for _ in range(2):
        assert torch.equal(f(plain), compiled(captured))
    assert captured.n == plain.n == 1
    assert torch.equal(captured.__dict__["doubled"], plain.__dict__["doubled"])


def test_a_later_registration_is_dispatched_to():
    @functools.singledispatch
    def name(x):
        return 1

    def f(x, y):
        return x * name(y)

    compiled = capture(f, fullgraph=True)
    x = torch.ones(2)
    assert compiled(x, "s")[0] == 1
    name.register(str, lambda y: 5)
    assert compiled(x, "s")[0] == 5


def test_a_random_number_nobody_looks_at_advances_the_generator():
    def f(x):
        random.uniform(0, 1)
        return x * 2

    compiled = capture(f, fullgraph=True)
    random.seed(1)
    f(torch.ones(1))
    want = random.random()
    for _ in range(2):
        random.seed(1)
        compiled(torch.ones(1))
        assert random.random() == want


def test_a_decision_on_a_random_number_is_refused():
    def f(x):
        return x * 2 if random.random() < 0.5 else x

    with pytest.raises(Unsupported, match="FE037"):
        capture(f, fullgraph=True)(torch.ones(1))


SETS = st.frozensets(st.integers(0, 6), max_size=5)
STEPS = st.lists(st.tuples(st.sampled_from("and or xor sub update pop_if_present discard symmetric".split()), SETS), max_size=5)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(SETS, STEPS)
def test_sets(check, start, steps):
    def f(a, b):
        s = set(start)
        t = s
        for name, other in steps:
            if name == "and":
                s &= other
            elif name == "or":
                s |= other
            elif name == "xor":
                s ^= other
            elif name == "sub":
                s -= other
            elif name == "update":
                s.update(other, [7])
            elif name == "symmetric":
                s.symmetric_difference_update(other)
            elif name == "discard":
                s.discard(3)
            elif 2 in s:
                s.remove(2)
        return sorted(s), s is t, s <= set(start), s | {1}, a + len(s)

    check(f)
