"""Python the language: the data model, statements, classes, generators, exceptions."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
from typing import Any, NamedTuple

import pytest
import torch


class Meta(type):
    def __call__(cls, *args, **kwargs):
        made = super().__call__(*args, **kwargs)
        made.tag = cls.__name__
        return made

    def __getitem__(cls, i):
        return cls.__name__, i

    @property
    def kind(cls):
        return 9


class Tagged(metaclass=Meta):
    def __init__(self, x):
        self.x = x


class Slotted:
    __slots__ = ("p", "q")

    def __init__(self, p):
        self.p = p


class Doubling:
    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner):
        return self if instance is None else instance.__dict__.get(self.name, 5)

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value * 2


class Rich:
    d = Doubling()

    @classmethod
    def made(cls, x):
        return cls.__name__, x

    @property
    def held(self):
        return self._held

    @held.setter
    def held(self, value):
        self._held = value

    @held.deleter
    def held(self):
        del self._held

    def __getattr__(self, name):
        if name.startswith("dyn"):
            return name
        raise AttributeError(name)

    def __contains__(self, x):
        return x == 3

    def __len__(self):
        return 2

    def __getitem__(self, i):
        if i > 2:
            raise IndexError
        return i * 10

    def __setitem__(self, key, value):
        self.__dict__[key] = value

    def __delitem__(self, key):
        del self.__dict__[key]

    def __call__(self, x, *, k=2):
        return x * k

    def __bool__(self):
        return False

    def __neg__(self):
        return "neg"

    def __rmul__(self, other):
        return "rmul", other

    def __iadd__(self, other):
        self.acc = other
        return self

    def __str__(self):
        return "S"

    def __format__(self, spec):
        return "F" + spec

    def __index__(self):
        return 2

    def __int__(self):
        return 6

    def __hash__(self):
        return 3

    def __eq__(self, other):
        return isinstance(other, Rich)


@functools.total_ordering
class Ordered:
    def __init__(self, v):
        self.v = v

    def __eq__(self, other):
        return self.v == other.v

    def __lt__(self, other):
        return self.v < other.v

    def __hash__(self):
        return hash(self.v)


class Base(abc.ABC):
    def __init__(self, **kwargs):
        self.kwargs = kwargs

    @abc.abstractmethod
    def f(self):
        return ["base"]


class Left(Base):
    def f(self):
        return ["left", *super().f()]


class Right(Base):
    def f(self):
        return ["right", *super().f()]


class Both(Left, Right):
    def __init__(self, x, **kwargs):
        super().__init__(**kwargs)
        self.x = x

    def f(self):
        return ["both", *super().f()]


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"

    @property
    def loud(self):
        return self.name.upper()

    @classmethod
    def default(cls):
        return cls.RED


class Row(NamedTuple):
    x: Any
    y: int = 2

    def total(self):
        return self.x + self.y


@dataclasses.dataclass(frozen=True, order=True)
class Point:
    a: int
    b: int = 2


@dataclasses.dataclass
class Record:
    x: Any
    y: list = dataclasses.field(default_factory=list)
    z: int = 3

    def __post_init__(self):
        self.w = self.z + 1


class Coded(Exception):
    def __init__(self, message, code):
        super().__init__(message)
        self.code = code

    def __str__(self):
        return f"{self.code}"


def metaclasses(a, b):
    return Tagged(a).tag, Tagged[3], Tagged.kind, Tagged(a).x + 1, type(Tagged).__name__


def slots(a, b):
    s = Slotted(a)
    s.q = 3
    try:
        s.z = 1
    except AttributeError:
        caught = True
    return s.p * 2, s.q, caught, hasattr(s, "z")


def data_model(a, b):
    h = Rich()
    h.d = 4
    h.held = a
    o = h
    h += 5
    h["zz"] = 1
    del h["zz"]
    first = (h.d, Rich.made(2), h.held, h.dynx, 3 in h, len(h), h[1], list(h), h(a, k=3), bool(h), -h, 2 * h, h.acc, o is h)
    del h.held
    return first, str(h), f"{h:x}", [1, 2, 3][h], int(h), hash(h), hasattr(h, "no"), getattr(h, "no", 1), range(h), f"{h!s}"


def ordering(a, b):
    return Ordered(1) <= Ordered(2), max(Ordered(1), Ordered(4)).v, {Ordered(1): a}[Ordered(1)], Ordered(1) in {Ordered(1)}, a + 1


def inheritance(a, b):
    try:
        Base()
    except TypeError:
        caught = True
    return Both(a, z=1).f(), Both(a, z=2).kwargs, caught, Both.mro()[0] is Both, a * Both(a).x


def enums(a, b):
    members = [c for c in Colour]
    return (
        Colour("b"),
        Colour["RED"].loud,
        Colour.default(),
        len(members),
        {Colour.RED: a}[Colour.RED],
        Colour.RED is Colour.BLUE,
        a * Colour.RED.value,
    )


def records(a, b):
    d = Record(a)
    d.y.append(1)
    e = dataclasses.replace(d, z=9)
    r = Row(b)
    x, y = r
    fields = [f.name for f in dataclasses.fields(d)]
    return (
        d,
        e,
        dataclasses.asdict(Point(1)),
        Point(1) < Point(2),
        {Point(1): 3}[Point(1)],
        repr(Point(1)),
        r.total(),
        r._replace(y=5),
        fields,
        x * y,
    )


def matching(a, b):
    out = []
    for v in (1, "a", [1, 2, 3], {"k": 5, "z": 1}, Row(1, 2), Point(1, 5), None, (1,), 3.5, Both(1)):
        match v:
            case 1:
                out.append("one")
            case str():
                out.append("str")
            case Row(x=1, y=q):
                out.append(("row", q))
            case [x, *rest]:
                out.append(("seq", x, rest))
            case {"k": k, **rest}:
                out.append(("map", k, rest))
            case Point(1, q):
                out.append(("point", q))
            case None:
                out.append("none")
            case float(f) if f > 3:
                out.append(("f", f))
            case Both(x=1):
                out.append("both")
            case _:
                out.append("other")
    return out, a + len(out)


def walrus(a, b):
    if (n := len([1, 2])) > 1:
        a = a * n
    return a, [y for x in range(3) if (y := x * 2) > 0]


def star_arguments(a, b):
    def f(x, /, y, *args, k=1, **kw):
        return x, y, args, k, kw

    items, more = [1, 2], {"k": 5, "z": 6}
    h, *m, t = [1, 2, 3, 4]
    return f(*items, 3, **more), f(0, *items, *[9], q=a, **more), [*items, *items], {**more, "w": 1}, {*items}, (h, m, t), a * h


def sending(a, b):
    def doubles():
        x = yield 1
        while x is not None:
            x = yield x * 2
        return "done"

    def outer():
        r = yield from doubles()
        yield r

    it = doubles()
    out = [next(it), it.send(5), it.send(a)]
    try:
        it.send(None)
    except StopIteration as e:
        out.append(e.value)
    return out, list(outer())


def ended(a, b):
    def counted(n):
        for _ in range(n):
            yield a
        return n if n else None

    def ends(generator):
        found = []
        for _ in range(4):
            try:
                found.append(next(generator))
            except StopIteration as e:
                found.append((e.value, e.args))
        return found

    return ends(counted(2)), ends(counted(0)), a + b


def throwing(a, b):
    out = [a * 2]

    def k():
        try:
            yield 1
        except ValueError as e:
            yield str(e)
        finally:
            out.append("finally")

    z = k()
    next(z)
    out.append(z.throw(ValueError("x")))
    z.close()
    w = k()
    next(w)
    out.append(w.throw(ValueError, ValueError("y"), None))
    w.close()
    return out


def closing_runs_finally(a, b):
    out = [a + b]

    def k():
        try:
            yield 1
        finally:
            out.append("finally")

    w = k()
    next(w)
    w.close()
    w.close()
    return out


def exceptions(a, b):
    out = []
    try:
        try:
            raise ValueError("a")
        except ValueError as e:
            raise KeyError("b") from e
        finally:
            out.append("f")
    except KeyError as e:
        out += [type(e.__cause__).__name__, e.args]
    try:
        try:
            raise Coded("m", 4)
        except Coded:
            raise
    except Coded as e:
        out += [e.code, str(e), e.args]
    for i in range(3):
        try:
            if i == 1:
                continue
            if i == 2:
                break
        finally:
            out.append(i)
    try:
        1 / 0
    except ZeroDivisionError as e:
        out.append(repr(e))
    return out, a - b


def raises(a, b):
    raise Coded("m", a.shape[0])


def set_in_place(a, b):
    s = {1, 2, 3}
    t = s
    s &= {2, 3, 4}
    s ^= {9}
    s -= {2}
    s |= {5}
    return s is t, t, a.sum()


PROGRAMS = [
    metaclasses, slots, data_model, ordering, inheritance, enums, records, matching, walrus, star_arguments, sending, throwing, closing_runs_finally,
    exceptions, set_in_place, ended,
]  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_program(fn, check):
    check(fn)


def test_sets_of_before_the_call_change_in_place():
    from opmill_bytecode_frontend import capture

    def f(s, x):
        s &= {1, 2, 3}
        s ^= {3, 7}
        return x * len(s)

    want, got, x = {1, 3, 5}, {1, 3, 5}, torch.ones(2)
    alias = got
    assert torch.equal(f(want, x), capture(f, fullgraph=True)(got, x))
    assert alias == want
