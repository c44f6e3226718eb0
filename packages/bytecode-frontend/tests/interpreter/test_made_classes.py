"""Classes that Python's library, decorators and metaclasses make in captured code: each call has its own, made as often as plainly."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import re
import typing
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

REGISTRY: list[Any] = []


def failing(*tries: Any) -> list[Any]:
    told = []
    for each in tries:
        try:
            told.append(each())
        except Exception as exc:
            told.append((type(exc).__name__, str(exc)))
    return told


def data_classes(x, n):
    @dataclasses.dataclass(order=True, frozen=True)
    class Base:
        a: int
        b: float = n
        c: list = dataclasses.field(default_factory=lambda: [n], compare=False)

        def __post_init__(self):
            object.__setattr__(self, "late", self.a * 2)

    @dataclasses.dataclass(kw_only=True)
    class Derived(Base if False else object):
        w: torch.Tensor
        v: torch.Tensor = x * 2
        kind: typing.ClassVar[int] = 3
        given: dataclasses.InitVar[int] = 4

        def __post_init__(self, given):
            self.given_was = given + n

    one, two = Base(1), Base(1, 5.0)
    d = Derived(w=x, given=7)
    told = failing(lambda: setattr(one, "a", 4), lambda: Base(), lambda: Derived(x), lambda: one < 3)
    return (
        one < two, one == Base(1), one.c, one.late, repr(one), hash(one) == hash(Base(1)), d.w + d.v, d.given_was, [f.name for f in dataclasses.fields(d)],
        dataclasses.asdict(one), dataclasses.replace(two, a=n).a, dataclasses.is_dataclass(Derived), Derived.kind, told, dataclasses.astuple(two),
    )  # fmt: skip


def wrong_data_classes(x, n):
    def mutable():
        @dataclasses.dataclass
        class A:
            a: list = []

    def order():
        @dataclasses.dataclass
        class A:
            a: int = 1
            b: int

    def mutable_object():
        @dataclasses.dataclass
        class A:
            a: int = 1

        @dataclasses.dataclass
        class B:
            a: A = A()  # noqa: RUF009

    return failing(mutable, order, mutable_object), x + n


def enumerations(x, n):
    class Color(enum.Enum):
        RED = 1
        GREEN = 2
        ALSO = 1

        @property
        def bright(self):
            return self.value * 10 + n

        @classmethod
        def first(cls):
            return cls.RED

    class Number(enum.IntEnum):
        ONE = enum.auto()
        TWO = enum.auto()

    class Named(str, enum.Enum):  # noqa: UP042
        A = "a"

    class Bits(enum.Flag):
        R = enum.auto()
        W = enum.auto()

    class Holding(enum.Enum):
        A = [1, {"k": (2, [3])}]
        B = (1, [2], {3})

    Made = enum.Enum("Made", "P Q")
    table = {Color.RED: x, Color.GREEN: x * 2}
    match Color(2):
        case Color.GREEN:
            y = x + Number.TWO
    return (
        table[Color.first()] + y, Color.ALSO is Color.RED, Color["GREEN"].bright, [c.name for c in Color], len(Color), Named.A == "a", Named.A.upper(), str(Color.RED),
        Bits.R | Bits.W, (Bits.R | Bits.W) & Bits.W is Bits.W, Made.P.value, list(Made), Color.RED in Color, isinstance(Color.RED, Color), Number.ONE + 1, Color.RED,
        failing(lambda: Color(9), lambda: Color["NO"], lambda: setattr(Color, "RED", 5), lambda: Color.NO), {Color.RED, Color.ALSO}, Color.__members__.keys(), Number(2), Holding.A.value, Holding.B.value, Holding([1, {"k": (2, [3])}]).name,
    )  # fmt: skip


def tuples(x, n):
    class Pair(typing.NamedTuple):
        a: torch.Tensor
        b: int = n

        def total(self):
            return self.a + self.b

    P = collections.namedtuple("P", ["u", "v"], defaults=[n])
    p, q = Pair(x), P(3)
    return (
        p.total(),
        p,
        p._replace(b=4).b,
        Pair._fields,
        q,
        q._asdict(),
        q == (3, n),
        P(*"ab"),
        p[1:],
        failing(lambda: P(), lambda: Pair(1, 2, 3)),
        Pair.__annotations__,
        P.__name__,
    )


def typed(x, n):
    class T(typing.TypedDict, total=False):
        a: int
        b: torch.Tensor

    t = T(a=n, b=x)
    return t, type(t), t["b"] + t["a"], T.__annotations__.keys(), sorted(T.__optional_keys__)


def protocols_and_abstract(x, n):
    @typing.runtime_checkable
    class Runs(typing.Protocol):
        def run(self): ...

    class Base(abc.ABC):
        @property
        @abc.abstractmethod
        def size(self): ...

        @abc.abstractmethod
        def run(self): ...

        def both(self):
            return self.run() + self.size

    class Real(Base):
        size = n

        def run(self):
            return x * 3

    return (
        Real().both(),
        failing(Base),
        isinstance(Real(), Base),
        issubclass(Real, Base),
        sorted(Base.__abstractmethods__),
        Real.__mro__[1] is Base,
    )


def generics(x, n):
    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        def __init__(self, v: T) -> None:
            self.v = v

    class Ints(Box[int]):
        pass

    return Box(x).v + 1, Ints(n).v, Box[int](n).v, Ints.__mro__[1] is Box


def metaclasses(x, n):
    class Meta(type):
        def __new__(mcls, name, bases, space, **kw):
            REGISTRY.append(("new", name, sorted(k for k in space if k[:2] != "__")))
            space["added"] = kw.get("added", 0)
            return super().__new__(mcls, name, bases, space)

        def __init__(cls, name, bases, space, **kw):
            super().__init__(name, bases, space)
            REGISTRY.append(("init", name))
            cls.made = n

        def __call__(cls, *args):
            REGISTRY.append("call")
            made = super().__call__(*args)
            made.called = True
            return made

        def __len__(cls):
            return 3

        @property
        def told(cls):
            return cls.__name__ * 2

    class A(metaclass=Meta, added=5):
        def __init__(self, v):
            self.v = v

    class B(A):
        def step(self):
            return super().__init__(x) or self.v

    C = Meta("C", (), {"k": n})
    a = A(x)
    return (
        a.v * 2,
        a.called,
        A.added,
        B.added,
        B.made,
        len(A),
        A.told,
        type(B) is Meta,
        B(1).step(),
        C.k,
        isinstance(A, Meta),
        type(C).__name__,
        [type(A)] == [Meta],
    )


def decorated(x, n):
    def registered(cls):
        REGISTRY.append(cls.__name__)
        cls.number = len(REGISTRY)
        cls.weight = x * 2
        return cls

    @registered
    class A:
        number = 0

        def get(self):
            return self.weight + self.number

    @functools.total_ordering
    class V:
        def __init__(self, v):
            self.v = v

        def __eq__(self, other):
            return self.v == other.v

        def __lt__(self, other):
            return self.v < other.v

    a = A()
    A.number += 1
    B = type("B", (A,), {"extra": n})
    del A.weight
    return (
        A.number,
        hasattr(a, "weight"),
        B.extra,
        B().number,
        V(1) <= V(2),
        V(3) > V(n),
        failing(lambda: A.weight, lambda: delattr(A, "none")),
    )


def leaving(x, n):
    @dataclasses.dataclass
    class D:
        a: torch.Tensor
        b: int = n

    class E(enum.Enum):
        ONE = 1

    class I(enum.IntFlag):  # noqa: E742
        R = 1
        W = 2

    class N(typing.NamedTuple):
        a: torch.Tensor

    class Abstract(abc.ABC):
        @abc.abstractmethod
        def f(self): ...

    Abstract.late = n
    return D, D(x), E, E.ONE, N, N(x), Abstract, {E.ONE: (E.ONE, D)}, I, I.R | I.W, [I(2)]


PROGRAMS = [data_classes, wrong_data_classes, enumerations, tuples, typed, protocols_and_abstract, generics, metaclasses, decorated]
BROKEN = [wrong_data_classes, generics]


def outcomes(f: Any) -> list[str]:
    REGISTRY.clear()
    told = [repr(f(torch.full((2,), 1.0 + i), n)) for i, n in enumerate([2, 2, 3, 2])]
    return [re.sub("0x[0-9a-f]+", "", each) for each in [*told, repr(REGISTRY)]]


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_and_effects_are_those_of_the_plain_function(program: Any) -> None:
    assert outcomes(capture(program)) == outcomes(program)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in BROKEN])
def test_captured_whole(program: Any) -> None:
    made: list[Any] = []
    assert outcomes(capture(program, fullgraph=True, on_translation=made.append)) == outcomes(program)
    assert made


def test_each_call_has_classes_of_its_own() -> None:
    made: list[Any] = []
    compiled = capture(leaving, fullgraph=True, on_translation=made.append)
    first, second = compiled(torch.ones(2), 3), compiled(torch.ones(2), 3)
    assert len(made) == 1
    for mine, theirs in zip(first[::2][:4], second[::2][:4]):
        assert mine is not theirs and mine.__name__ == theirs.__name__ and mine.__module__ == theirs.__module__ == __name__
    data, d, E, one, N, t, Abstract, table, I, both, two = first  # noqa: E741
    assert (
        type(d) is data
        and dataclasses.fields(data)[1].default == 3
        and data(1, 3) == data(1)
        and data(4).b == 3
        and repr(data(1)) == "leaving.<locals>.D(a=1, b=3)"
    )
    assert one is E.ONE and table[E.ONE] == (E.ONE, data) and E(1) is one and type(t) is N and N._fields == ("a",)
    assert both is I.R | I.W and two[0] is I.W
    assert Abstract.late == 3 and Abstract.__abstractmethods__ == {"f"}
    with pytest.raises(TypeError, match="abstract"):
        Abstract()


class Telling(type):
    def __dir__(cls):
        return ["a", "z"]


class Base:
    inherited = 1

    def __init__(self):
        self.own = 1


def listed_plain(x, n):
    class Made:
        value = n

        def method(self):
            return 1

    return dir(Made), dir(Made())


def listed_derived(x, n):
    class Made(Base):
        __slots__ = ("slot",)
        note: int = n

    return dir(Made), dir(Made())


def listed_by_its_metaclass(x, n):
    class Made(metaclass=Telling):
        value = n

    return dir(Made), dir(Made())


def listed_later(x, n):
    class Made:
        pass

    Made.late = n
    return dir(Made), [name for name in dir(type("Other", (Made, Base), {"more": n})) if name[0] != "_"]


def listed_of_the_library(x, n):
    @dataclasses.dataclass
    class Made:
        a: int = n

    class Colour(enum.Enum):
        RED = n

    return dir(Made), dir(Made()), dir(collections.namedtuple("Pair", "a b")), dir(Colour), dir(Colour.RED)


@pytest.mark.parametrize("program", [listed_plain, listed_derived, listed_by_its_metaclass, listed_later, listed_of_the_library])
def test_what_a_class_has_that_is_made_here(program):
    compiled = capture(program, "eager")
    for n in (1, 2):
        assert compiled(torch.ones(2), n) == program(torch.ones(2), n)
