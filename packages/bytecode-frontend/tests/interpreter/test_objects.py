"""Exceptions, functions and other objects as the program sees them: attributes, contexts, identity, hashes, copies."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import operator
from contextlib import ExitStack, contextmanager

import pytest
import torch

from opmill_bytecode_frontend import capture


class Color(enum.Enum):
    R = 1


class Plain:
    pass


class Chained(collections.ChainMap):
    def __ror__(self, other):
        return super().__ror__(other)


def decorated(f):
    @functools.wraps(f)
    def wrapper(*args):
        "text of the wrapper"
        return f(*args)

    wrapper.extra = 5
    return wrapper


@contextmanager
def raising(exc):
    try:
        yield
    finally:
        raise exc


def functions_have_dictionaries(a, b):
    def g(x):
        "text"
        return x

    g.foo = 3
    h = decorated(g)
    return h.foo, h.__doc__, h.__name__, h.__wrapped__ is g, h.extra, sorted(h.__dict__), g.__doc__, a + 1


def errors_tell_what_they_are_about(a, b):
    out = []
    for f in (lambda: Plain().blech, lambda: (1).foo, lambda: super(Plain, Plain()).zz, lambda: nosuch, lambda: len.foo, lambda: [].foo):  # noqa: F821
        try:
            f()
        except (AttributeError, NameError) as exc:
            out.append((exc.args, exc.name))
    for made in (
        ImportError("m", name="n", path="p"), SystemExit(3), OSError(2, "no", "file"), UnicodeDecodeError("utf8", b"x", 0, 1, "r"), StopIteration(4),
        SyntaxError("m", ("f", 3, 4, "text")),
    ):  # fmt: skip
        fields = [
            getattr(made, n, None)
            for n in ("name", "path", "msg", "code", "errno", "strerror", "filename", "encoding", "start", "value", "lineno", "text")
        ]
        out.append((type(made), made.args, fields))
    try:
        Plain().x
    except AttributeError as exc:
        out.append(type(exc.obj))
    return out, a + 1


def contexts_through_managers(a, b):
    made = [Exception(i) for i in range(5)]
    try:
        with ExitStack() as stack:
            for i in (4, 3, 2):
                stack.enter_context(raising(made[i]))
            raise made[1]
    except Exception as exc:
        chain = [exc]
        while chain[-1].__context__ is not None:
            chain.append(chain[-1].__context__)
        return [made.index(e) for e in chain], a + 1


def identities_and_hashes(a, b):
    first = "xyz"
    second = first[:1] + "yz"
    same = (
        hash((1, "a")) == hash((1, "a")),
        hash(frozenset([1])) == hash(frozenset([1])),
        copy.copy(Color.R) is Color.R,
        copy.deepcopy([Color.R])[0] is Color.R,
    )
    return first is second, operator.is_(first, second), first == second, same, a + 1


def functions_that_change_arguments(a, b):
    counted = collections.OrderedDict()
    collections._count_elements(counted, "abca")
    return counted, collections.Counter("abca"), a + 1


def reflected_methods_come_first_where_overridden(a, b):
    return [
        type(v)
        for v in (Chained() | collections.ChainMap(), collections.ChainMap() | Chained(), collections.ChainMap() | {}, {} | Chained())
    ], a + 1


PROGRAMS = [
    functions_have_dictionaries, errors_tell_what_they_are_about, contexts_through_managers, identities_and_hashes, reflected_methods_come_first_where_overridden,
]  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_program(fn, check):
    check(fn)


def test_what_changes_its_arguments_is_not_computed_ahead():
    x = torch.ones(2)
    compiled = capture(functions_that_change_arguments, "eager")
    for _ in range(2):
        assert compiled(x, x)[:2] == functions_that_change_arguments(x, x)[:2]


def test_executed_code_runs_with_the_program():
    ran = []

    def f(x):
        names = {"ran": ran}
        exec("y = 5; ran.append(y)", names)
        return x + names["y"]

    compiled = capture(f, "eager")
    for calls in (1, 2):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 6.0))
        assert len(ran) == calls


def test_an_error_that_leaves_keeps_what_it_is_about():
    def f(x):
        try:
            return Plain().blech + x
        except AttributeError as exc:
            return exc

    exc = capture(f, "eager", fullgraph=True)(torch.ones(2))
    assert exc.name == "blech" and type(exc.obj) is Plain


def test_hashes_of_new_objects_are_addresses():
    def f(x):
        p = Plain()
        return x + 1, p, hash(p), hash((p, 1))

    _, p, alone, inside = capture(f, "eager")(torch.ones(2))
    assert alone == hash(p) and inside == hash((p, 1))


class Number(int):
    pass


class Row(tuple):
    scale = None


def test_attributes_of_tuples_and_numbers_of_own_classes():
    row, number = Row((1, 2)), Number(3)
    number.notes = [1]

    def f(x):
        return x + (row.scale or 1), copy.deepcopy(number)

    compiled = capture(f, "eager")
    for scale in (None, 5, 6):
        row.scale = scale
        y, copied = compiled(torch.zeros(2))
        assert torch.equal(y, torch.full((2,), float(scale or 1)))
        assert copied.notes == [1] and copied.notes is not number.notes
    del row.scale
    assert torch.equal(compiled(torch.zeros(2))[0], torch.ones(2))


def bases_and_counts(a, b):
    nan = float("nan")
    return (
        int("101", base=2),
        int("7", 8),
        [nan].count(nan),
        nan in [nan],
        [float("nan")].count(nan),
        [nan] == [nan],
        {1: nan} == {1: nan},
        a + 1,
    )


@dataclasses.dataclass
class Point:
    x: int
    y: int


def faulty_patterns(a, b):
    out = []
    key = "k"

    class Keys:
        one = two = "k"

    try:
        match Point(1, 2):
            case Point(1, x=2):
                out.append("matched")
    except TypeError as exc:
        out.append(exc.args)
    try:
        match {"k": 1}:
            case {Keys.one: _, Keys.two: _}:
                out.append("matched")
    except ValueError as exc:
        out.append(exc.args)
    return out, key, a + 1


class Proxy:
    def __init__(self, obj):
        self.__obj = obj

    def __getattribute__(self, name):
        return object.__getattribute__(self, name) if name.startswith("_Proxy__") else getattr(self.__obj, name)


class Setting:
    def __set__(self, obj, value):
        obj.__dict__["held"] = value


SETTING = Setting()


class Holder:
    held = SETTING


class Answering:
    def __init__(self):
        return 10  # noqa: PLE0101


PROXY = Proxy(Plain())


def protocols(a, b):
    holder = Holder()
    before = holder.held is SETTING
    holder.held = 42
    try:
        Answering()
    except TypeError as exc:
        text = exc.args
    return [isinstance(p, c) for p in (Proxy(Plain()), PROXY) for c in (Plain, Proxy, int)], before, holder.held, text, a + 1


def long_ranges(a, b):
    total = 0
    for i in range(10**13):
        total += i
        if i > 5:
            break
    return (
        total,
        list(zip(range(10**12), "abc")),
        next(iter(range(10**15))),
        [type(iter(v)) for v in (range(3), "a", b"a")],
        list(b"ab"),
        a + 1,
    )


def equality_of_bound_methods(a, b):
    x, y = [1], [1]
    return (
        x.append == x.append,
        x.append == y.append,
        x.append != x.append,
        "a".join == "a".join,
        x.append == x.pop,
        PLAIN.append == x.append,
        a + 1,
    )


PLAIN = [1]


@pytest.mark.parametrize("fn", [protocols, long_ranges, equality_of_bound_methods], ids=lambda f: f.__name__)
def test_data_model(fn, check):
    check(fn)


def test_patterns_that_name_a_part_twice():
    x = torch.ones(2)
    assert capture(faulty_patterns, "eager")(x, x)[0] == faulty_patterns(x, x)[0]
    compare_whole = capture(bases_and_counts, "eager", fullgraph=True)
    assert compare_whole(x, x)[:-1] == bases_and_counts(x, x)[:-1]


def slices_and_views(a, b):
    return slice(1, 2) == slice(1, 2), slice(1) != slice(2), {1: 2}.items() == {1: 2}.items(), {}.values() == {}.values(), a + 1


def test_slices_compare_by_their_parts(check):
    check(slices_and_views)


def test_what_a_builtin_type_can_is_asked_of_it_where_it_is_not_known():
    compiled = capture(lambda x: (x + 1, operator.length_hint(itertools.repeat(None, 50)), operator.length_hint(zip([1]), 3)), "eager")
    assert compiled(torch.ones(2))[1:] == (50, 3)


def sums_of_sizes_and_sequences(a, b):
    s = a.shape
    made = ((5,) + s, s + (5,), s * 2, 2 * s, s[1:], (1,) + (2,), (-1,) + s[1:] + (s[-1],))
    texts = []
    for f in (
        lambda: [1] + s,
        lambda: [1] + (1,),
        lambda: (1,) + [2],
        lambda: [1] * 2.5,
        lambda: 2.5 * [1],
        lambda: 1 + [1],
        lambda: "a" + 1,
    ):
        try:
            f()
        except TypeError as exc:
            texts.append(exc.args)
    return [type(v) for v in made], made, texts, a + 1


def test_sums_of_sizes_and_sequences(check):
    check(sums_of_sizes_and_sequences)
