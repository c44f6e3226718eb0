"""Methods of classes derived from builtin ones run as the program wrote them; what typing and classes make of classes."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import sys
import types
import typing

import pytest
import torch
from differing import Doubling, Plain, attempt, differs, told

# ---- classes derived from builtin ones ---------------------------------------------------------------------------------------------


def test_the_constructor_of_a_named_tuple_runs():
    differs(lambda x: (Doubling(1, 3), Doubling(1) + (2,), x * Doubling(1, 2).y))
    differs(
        lambda x: (attempt(lambda: Plain()), attempt(lambda: Plain(1, 2, 3)), attempt(lambda: Plain(1, c=3)), Plain(1)._replace(a=2), x + 1)
    )


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


class BoundPartial(functools.partial):
    """One with an attribute of its own in the place of the function."""

    __slots__ = ("func",)

    def __init__(self, func):
        self.func = func

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self.func, instance)


class Scaling:
    by = 3
    scaled = BoundPartial(lambda self, x: x * self.by)


def test_partials_that_mean_something_else_by_their_attributes():
    alone = BoundPartial(lambda x: x * 2)
    differs(lambda x: (Scaling().scaled(x), alone.func(x)))
    differs(lambda x: alone(x) + 1, whole=False)


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
    differs(
        lambda x: (
            T + 4,
            T * 2,
            3 + T,
            [1, 2, 3][T],
            list(range(T)),
            x * T,
            torch.zeros(T),
            (1, 2)[:T],
            {2: 5}[T],
            -T,
            f"{T:03d}",
            "ab" * T,
            x + 1,
        )
    )
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
    differs(
        lambda x: (
            Colour.RED + x,
            Colour.RED + 1,
            sorted([Colour.BLUE, Colour.RED]),
            bool(Colour.RED),
            1 if Colour.BLUE else 2,
            {Colour.RED: 1}[Colour.RED],
        )
    )


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


class MadeError(Exception):
    def __new__(cls, *args):
        made = super().__new__(cls, *args)
        made.kept = len(args)
        return made


class FullError(MadeError):
    def __init__(self, text):
        super().__init__(text, 2)
        self.text = text


def test_exceptions_with_a_constructor_of_their_own():
    def raised(x):
        try:
            raise FullError("a")
        except MadeError as exc:
            return exc.kept, exc.text, exc.args, MadeError(1, 2).kept, str(MadeError(4)), x + 1

    differs(raised)


class OwnList(list):
    def __iadd__(self, other):
        return super().__iadd__(other)

    def added(self, item):
        list.append(self, item)
        return self.__imul__(2)


class OwnDict(dict):
    pass


class OwnSet(set):
    pass


class OwnDeque(collections.deque):
    pass


class PlainList(list):
    pass


def in_place(x):
    made = [OwnList([1]), PlainList([1]), OwnDict(a=1), OwnSet({1}), OwnDeque([1])]
    a, b, c, d, e = made
    a += [2]
    b += [x]
    b *= 2
    c |= {"b": x}
    d |= {2, 3}
    d &= {1, 2}
    d ^= {7}
    d -= {1}
    e += [x + 1]
    e *= 2
    f = a.added(5)
    g = operator.iadd(PlainList([1]), [2])
    same = [old is new for old, new in zip(made, (a, b, c, d, e), strict=True)]
    return same, f is a, type(g).__name__, [type(each).__name__ for each in made], list(a), len(b), dict(c), sorted(d), list(e), x * 2


def test_operators_in_place_give_the_object_itself():
    differs(in_place)
