"""What the program itself runs when builtins ask it: in Python's order, as often as in Python, also by methods of classes derived from builtin ones."""

from __future__ import annotations

import collections
import copy
import dataclasses
import decimal
import enum
import fractions
import functools
import itertools
import operator
import sys
import types
import typing
from collections import namedtuple

import pytest
import torch

from opmill_bytecode_frontend import capture

LOG: list = []


def told(what):
    LOG.append(what)
    return what


def generated(*items):
    for item in items:
        yield told(item)


def attempt(f):
    try:
        return f()
    except Exception as exc:
        return type(exc).__name__, str(exc)


def run(f, x):
    LOG.clear()
    return f(x), list(LOG)


def differs(f, whole=True):
    """``f(x)`` gives what it gives plainly, and the program's own code runs in the same order: on a miss, on a hit, and whole where it is said."""
    x = torch.ones(3)
    compiled = capture(f, "eager", fullgraph=whole)
    want = run(f, x)
    for _ in range(2):
        got = run(compiled, x)
        assert str(got) == str(want)


# ---- the order in which builtins take items and call functions ---------------------------------------------------------------------


class Adding:
    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        return Adding(self.v + told(("add", self.v, other))[2])


ITERATING = {
    "min": lambda x: (min(generated(3, 1, 2), key=lambda v: told(-v)), x + 1),
    "max": lambda x: (max(generated(3, 1, 2), key=told), x + 1),
    "reduce": lambda x: (functools.reduce(lambda a, b: told(a + b), generated(1, 2, 3)), x + 1),
    "sum": lambda x: (sum(generated(1, 2, 3), Adding(0)).v, sum([0.1] * 10), sum([True, 2.5, x.sum()]), x + 1),
    "accumulate": lambda x: (next(a := itertools.accumulate(generated(1, 2, 3), lambda p, q: told(p + q))), told("made"), list(a), x + 1),
    "product": lambda x: (p := itertools.product(generated(1, 2), generated(3, 4)), told("made"), list(p), x + 1)[1:],
    "permutations": lambda x: (p := itertools.permutations(generated(1, 2)), told("made"), list(p), x + 1)[1:],
    "cycle": lambda x: (c := itertools.cycle(generated(1, 2)), told("made"), [next(c) for _ in range(5)], x + 1)[1:],
    "zip_longest": lambda x: (z := itertools.zip_longest(generated(1, 2), generated(3)), told("made"), next(z), list(z), x + 1)[1:],
    "islice": lambda x: (list(itertools.islice(g := generated(*range(9)), 0, 4, 2)), next(g), list(itertools.islice(g, 1, None, 3)), x + 1),
    "pairwise": lambda x: (p := itertools.pairwise(generated(1, 2, 3)), told("made"), list(p), x + 1)[1:],
    "groupby": lambda x: ([(k, list(g)) for k, g in itertools.groupby(generated(1, 1, 2, 3), lambda v: told(v // 2))], x + 1),
    "groups left": lambda x: (g := itertools.groupby(generated(1, 1, 2, 2)), a := next(g), b := next(g), list(a[1]), list(b[1]), x + 1)[3:],
}


@pytest.mark.parametrize("name", ITERATING)
def test_items_are_taken_when_python_takes_them(name):
    differs(ITERATING[name])


def refused(x):
    one = (itertools.cycle, itertools.accumulate, itertools.product, itertools.pairwise, itertools.zip_longest, itertools.groupby, itertools.tee, enumerate)
    said = [attempt(lambda f=f: f(5)) for f in one]
    return said, [
        attempt(lambda: itertools.islice([1], -1)),
        attempt(lambda: itertools.combinations([1], -1)),
        attempt(lambda: itertools.count("a")),
        attempt(lambda: itertools.repeat(1, "a")),
        attempt(lambda: itertools.tee([1], -1)),
        attempt(lambda: itertools.product([1], repeat=-1)),
        attempt(lambda: enumerate([1], "a")),
        attempt(lambda: list(zip([1, 2], [1], strict=True))),
        attempt(lambda: list(zip([1], [1], [1, 2], strict=True))),
        attempt(lambda: list(zip([1], [1, 2], [1], strict=True))),
        attempt(lambda: sum(["a"], "")),
        x + 1,
    ]


def test_iterators_are_refused_when_they_are_made():
    differs(refused)


# ---- operators and what they ask ---------------------------------------------------------------------------------------------------


class Left:
    def __eq__(self, other):
        told("Left.eq")
        return NotImplemented


class Right(Left):
    def __ne__(self, other):
        told("Right.ne")
        return NotImplemented


def test_an_object_is_asked_for_equality_where_it_has_no_inequality():
    differs(lambda x: (Left() != Right(), Right() != Left(), Left() != Left(), Left() == 3, Left().__ne__(3), object.__ne__(Left(), 3), x + 1))


class Blocked:
    __add__ = __iadd__ = __radd__ = __eq__ = __len__ = __getitem__ = __iter__ = __contains__ = __call__ = __neg__ = __float__ = __reversed__ = None


def blocked(x):
    b = Blocked()

    def added():
        c = b
        c += 1

    asked = (
        added,
        lambda: b + 1,
        lambda: 1 + b,
        lambda: b == 1,
        lambda: b != 1,
        lambda: len(b),
        lambda: b[0],
        lambda: iter(b),
        lambda: 1 in b,
        lambda: b(),
        lambda: -b,
        lambda: float(b),
        lambda: reversed(b),
        lambda: hash(b),
        lambda: decimal.Decimal(1) < 1j,
    )
    return [attempt(f) for f in asked], x + 1


def test_methods_that_are_none_are_refused_as_python_refuses():
    differs(blocked)


class Index:
    def __init__(self, i):
        self.i = i

    def __index__(self):
        return told(self.i)


def test_methods_of_sequences_called_by_name_ask_for_an_index():
    differs(lambda x: ("a".__mul__(Index(2)), [1].__mul__(Index(2)), (1,).__rmul__(Index(2)), range(9).__getitem__(Index(3)), x + 1), whole=False)
    differs(lambda x: (attempt(lambda: [1].__add__(3)), "abc".__getitem__(slice(1, 3)), attempt(lambda: "a".__mod__(1)), x + 1), whole=False)
    differs(lambda x: ((1).__add__("a"), "a".__eq__(1), {}.__or__([]), x + 1))


class Meta(type):
    def __instancecheck__(cls, value):
        return told(value) == 3

    def __subclasscheck__(cls, other):
        return told(True)


class Checked(metaclass=Meta):
    pass


def test_metaclasses_are_asked_about_instances():
    differs(lambda x: (isinstance(3, Checked), isinstance(4, (str, Checked)), isinstance(Checked(), Checked), issubclass(int, Checked), x + 1))


# ---- classes derived from builtin ones ---------------------------------------------------------------------------------------------


class Doubling(namedtuple("Doubling", "x y", defaults=[3])):
    def __new__(cls, x, y=0):
        told("new")
        return super().__new__(cls, x, y * 2)


Plain = namedtuple("Plain", "a b", defaults=[3])


def test_the_constructor_of_a_named_tuple_runs():
    differs(lambda x: (Doubling(1, 3), Doubling(1) + (2,), x * Doubling(1, 2).y))
    differs(lambda x: (attempt(lambda: Plain()), attempt(lambda: Plain(1, 2, 3)), attempt(lambda: Plain(1, c=3)), Plain(1)._replace(a=2), x + 1))


class Vector(typing.NamedTuple):
    a: int
    b: int

    def __add__(self, other):
        return Vector(self.a + told(other.a), self.b + other.b)

    def __rmul__(self, k):
        return Vector(self.a * k * 10, self.b)

    def __eq__(self, other):
        return told(self.a) == other.a

    def __hash__(self):
        return hash(self.a)

    def __bool__(self):
        return False

    def __call__(self, x):
        return x + self.a

    def __repr__(self):
        return f"V{told(self.a)}"

    def __lt__(self, other):
        return told(self.a) > other.a

    def __enter__(self):
        return told("enter")

    def __exit__(self, *args):
        told("exit")


V = Vector(5, 6)


def vectors(x):
    v = Vector(1, 2)
    with v as entered:
        pass
    first = entered, v + V, 2 * v, v == Vector(1, 9), V != v, len(v), list(v), v[1], 5 if v else 6, v(x), repr(v), f"{V}"
    return first, sorted([v, Vector(3, 0)]), {v: 1}[Vector(1, 5)], hash(V) == hash(5), x + 1


def test_named_tuples_compute_as_their_class_says():
    differs(vectors)


class Pair(tuple):
    def __new__(cls, *items):
        told("new")
        return super().__new__(cls, items)

    def total(self):
        return sum(self)


class Counted(tuple):
    def __len__(self):
        return 77

    def __iter__(self):
        return iter([told(1)])


COUNTED = Counted((4, 5))


def test_classes_derived_from_tuple():
    differs(lambda x: ((p := Pair(1, 2)), p.total(), p[0], p + (3,), p == (1, 2), type(p).__name__, x + 1))
    differs(lambda x: (len(COUNTED), list(COUNTED), COUNTED[1], len(Counted([1])), x + 1), whole=False)


class Tagged(int):
    def __add__(self, other):
        return int(self) * 100 + told(other)


class Name(str):
    def __str__(self):
        return "N" + told(str.__str__(self))

    def __eq__(self, other):
        return str.__eq__(self, told(other))

    __hash__ = str.__hash__

    def low(self):
        return self.lower()


T, N = Tagged(2), Name("Q")


def test_numbers_and_texts_of_classes_of_the_program():
    differs(lambda x: (T + 4, T * 2, 3 + T, [1, 2, 3][T], list(range(T)), x * T, torch.zeros(T), (1, 2)[:T], {2: 5}[T], -T, f"{T:03d}", "ab" * T, x + 1))
    differs(lambda x: (str(N), f"{N}", "%s" % N, N == "Q", N + "z", N.low(), N[0], {"Q": 2}[N], x + 1), whole=False)  # noqa: UP031


class Colour(enum.Enum):
    RED = 1
    BLUE = 2

    def __add__(self, other):
        return self.value + other

    def __lt__(self, other):
        return told(self.value) < other.value

    def __bool__(self):
        return told(self.value) == 2


def test_members_of_enums_compute_as_their_class_says():
    differs(lambda x: (Colour.RED + x, Colour.RED + 1, sorted([Colour.BLUE, Colour.RED]), bool(Colour.RED), 1 if Colour.BLUE else 2, {Colour.RED: 1}[Colour.RED]))


class Bound:
    def __init__(self, function):
        self.function = function

    def __call__(self, cls):
        return self.function(cls)

    def __get__(self, instance, owner=None):
        return types.MethodType(self, owner)


class Nested:
    @classmethod
    @Bound
    def name(cls):
        return cls.__name__


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="class methods do not chain descriptors any more")
def test_class_methods_of_descriptors():
    differs(lambda x: (Nested.name(), Nested().name(), x + 1))


def local_descriptors(x):
    def f():
        "doc"

    class Local:
        @property
        def p(self):
            "text"

        @p.setter
        def p(self, v):
            told(v)

    Local().p = 3
    c, s = classmethod(f), staticmethod(f)
    return c.__wrapped__ is f, c.__name__, c.__doc__, s.__module__, s(), Local.p.__doc__, Local.p.fset.__name__, x + 1


def test_descriptors_made_in_captured_code_tell_of_their_functions():
    differs(local_descriptors)


# ---- what typing and classes make of classes ---------------------------------------------------------------------------------------


class Subscripted:
    def __class_getitem__(cls, key):
        return told(key)


@typing.runtime_checkable
class Named(typing.Protocol):
    name: str


def about_types(x):
    T = typing.TypeVar("T")
    N = typing.NewType("N", int)
    made = typing.NamedTuple("Made", [("a", int)])  # noqa: UP014
    kinds = T.__module__, N(3), N.__module__, made(1), made.__module__, isinstance(V, Named), isinstance(3, int | str)
    refused = [attempt(lambda: typing.Generic[int]), attempt(lambda: typing.Annotated[int]), attempt(lambda: int[3])]
    return kinds, refused, Subscripted[3], list[int], x + 1


def test_types_that_typing_makes_are_of_the_module_that_asks():
    differs(about_types, whole=False)


def test_subscripts_of_classes_run_the_class():
    differs(lambda x: (Subscripted[3], Subscripted["a", x.shape], attempt(lambda: int[3]), x + 1))


def read_by_eval(x):
    def check(*args):
        return eval(compile("args[1]", "q", "eval"), None, None) + eval(*(compile("len(args)", "q", "eval"),))

    return check(1, 2), x + 1


def test_eval_reads_the_variables_of_its_caller():
    differs(read_by_eval, whole=False)


def test_methods_of_literals_cross_a_break():
    def f(x):
        add = (3).__add__
        return [g(x.sum().tolist()) for g in [add]], add(4), x + 1

    differs(f, whole=False)


def test_classes_that_say_what_they_derive_from_are_made_natively():
    def f(x):
        class A:
            @classmethod
            def __subclasshook__(cls, other):
                return True if cls is A else NotImplemented

        return issubclass(int, A), x + 1

    differs(f, whole=False)


# ---- keys whose hash the program tells ---------------------------------------------------------------------------------------------


class Key:
    def __init__(self, v):
        self.v = v
        self.fails = False

    def __hash__(self):
        told(("hash", self.v))
        return self.missing if self.fails else self.v % 8

    def __eq__(self, other):
        return told(self.v) == other.v

    def __repr__(self):
        return f"K{self.v}"


def keyed(x):
    d = collections.defaultdict(list)
    d[Key(2)].append(3)
    failing = Key(1)
    e = {failing: 1, (Key(3), 4): 5}
    failing.fails = True
    return dict(d), e, {Key(3), Key(1)}, [k for k in {Key(3), Key(1)}], frozenset([Key(4)]), attempt(lambda: e[failing]), x + 1


def test_hashes_are_asked_for_as_often_as_in_python():
    differs(keyed)


def test_keys_of_classes_made_in_captured_code_cross_a_break():
    def f(x):
        class Failed(Exception):
            pass

        class Bad:
            fails = False

            def __hash__(self):
                if self.fails:
                    raise Failed
                return 42

        bad = Bad()
        d = {bad: 1}
        bad.fails = True
        n = x.sum().tolist()
        try:
            d.setdefault(bad, n)
        except Failed:
            return len(d), x + 1

    differs(f, whole=False)


class Shrinking:
    def __init__(self, items):
        self.items = items

    def __eq__(self, other):
        told(len(self.items))
        self.items[1:] = []
        return False


def shrinking(x):
    out = []
    for ask in (lambda i: i.index(3), lambda i: i.count(3), lambda i: 3 in i, lambda i: i.remove(3)):
        items = []
        items += [Shrinking(items), 1, 3]
        out += [attempt(lambda ask=ask, items=items: ask(items)), len(items)]
    return out, [1, 2, 1, 3].index(1, -2), [1, 2].index(2, -9, 9), x + 1


def test_lists_that_shrink_while_they_are_searched():
    differs(shrinking)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int = 0


class Refusing(enum.Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value):
        if value == "bad":
            return 5
        raise ZeroDivisionError(value)


def contexts(x):
    out = []
    for value in ("bad", "worse"):
        try:
            Refusing(value)
        except Exception as exc:
            out.append((type(exc).__name__, type(exc.__context__).__name__))
    return out, x + 1


def test_errors_of_builtins_keep_what_they_were_raised_in_the_midst_of():
    differs(contexts)


def test_hashes_are_numbers_as_large_as_the_program_gives_them():
    differs(lambda x: (hash(Frozen()) == hash((0,)), hash(()), {Frozen(2): 3}[Frozen(2)], x + 1))


def proxied(x):
    d = {"a": 1}
    v = types.MappingProxyType(d)
    d["b"] = 2
    d["a"] = 7

    def store():
        v["z"] = 1

    return v["a"], list(v), len(v), list(reversed(v)), v == d, v | {"c": 1}, v.copy(), attempt(store), attempt(lambda: v.pop("a")), d, x + 1


def test_a_mapping_proxy_shows_the_dictionary_as_it_is_now():
    differs(proxied)


class Answering(type):
    def __call__(cls, *args):
        told("call")
        return super().__call__(*args)

    def __getattr__(cls, name):
        return told(name)

    def __bool__(cls):
        return told(False)

    def __eq__(cls, other):
        return told(True)

    def __hash__(cls):
        return 1


class Answered(metaclass=Answering):
    def __init__(self, v):
        self.v = v


def made_by_metaclass(x):
    class Local(type):
        def __new__(meta, name, bases, names):
            return super(Local, meta).__new__(meta, told(name), bases, names)  # noqa: UP008

    class Made(metaclass=Local):
        pass

    return Made.__name__, type(Made).__name__, x + 1


def test_metaclasses_answer_for_their_classes():
    differs(lambda x: (Answered(3).v, Answered.zz, bool(Answered), 1 if Answered else 2, Answered == 3, x + 1))
    differs(made_by_metaclass, whole=False)


# ---- copies, partials, dispatch, counting ------------------------------------------------------------------------------------------


def given(*args, **kwargs):
    return args, kwargs


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
    asked = [([], "__name__"), ({}, "__mro__"), ((1,), "__bases__"), (3, "__qualname__"), (slice(1), "__name__"), (functools.partial(max), "zz"), (g, "zz")]
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
    differs(lambda x: (float.fromhex("0x1p3"), int.from_bytes(b"\1\2", "big"), bytes.fromhex("00ff"), attempt(lambda: float.fromhex("z")), x + 1))


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
