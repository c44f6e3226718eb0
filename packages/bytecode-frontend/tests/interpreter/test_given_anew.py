"""Functions and classes that each call makes anew and hands to captured code: as arguments, and behind graph breaks."""

from __future__ import annotations

import dataclasses
import re
import warnings
from functools import partial
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

KEPT: list[Any] = []


def broken(x: torch.Tensor) -> float:
    """What ends a graph."""
    return float(str(x.sum().item()))


def closure(x, n):
    def g(y, more=n, *, times=x):
        return y * k + more + times

    k = n + 1
    broken(x)
    return g(x), g(x, 5), g.__name__, g.__defaults__


def changing_cell(x, n):
    k = n

    def add():
        nonlocal k
        k += 1
        return k

    broken(x)
    add()
    y = x * add()
    broken(y)
    return y + add(), k


def several(x, n):
    made = [lambda y, i=i: y * i for i in range(1, 4)]
    same = made[0]
    broken(x)
    return [f(x) for f in made], made[0] is same, made[0] is made[1], made[0] == same


def which_one(x, n):
    def g(y):
        return y + 1

    KEPT.append(g)
    table = {g: n}
    broken(x)
    return table[g], KEPT[-1] is g, g in KEPT[:-1], g is KEPT[0], {g: 1}[KEPT[-1]], g(x)


def with_attributes(x, n):
    def g(y):
        g.calls += 1
        return y * g.calls

    g.calls = n
    broken(x)
    return g(x), g(x), g.calls, hasattr(g, "other")


def generator(x, n):
    def g(m):
        for i in range(m):
            yield x * i + n

    broken(x)
    return list(g(2)), sum(g(3)), [t + n for t in g(1)]


def partly_run(x, n):
    g = (x * i + n for i in range(4))
    next(g)
    broken(x)
    return list(g)


def instance(x, n):
    class Local:
        factor = n
        named = "a"

        def __init__(self, v):
            self.v = v

        def use(self, y):
            return y * self.v + self.factor

        @property
        def twice(self):
            return self.v * 2

        @classmethod
        def make(cls, v):
            return cls(v)

        @staticmethod
        def plus(y):
            return y + n

        def __add__(self, other):
            return type(self)(self.v + other.v)

    o = Local(x)
    broken(x)
    p = Local.make(2) + Local(3)
    return (
        o.use(x),
        o.twice,
        p.v,
        type(p) is Local,
        isinstance(o, Local),
        Local.plus(x),
        Local.__name__,
        Local.__mro__[1:],
        p.named,
        type(o) is type(p),
    )


def derived(x, n):
    class Base:
        def __init__(self):
            self.n = n

        def step(self, y):
            return y + self.n

    class Derived(Base):
        def step(self, y):
            return super().step(y) * 2, __class__ is Derived

        def __len__(self):
            return self.n

    d = Derived()
    broken(x)
    d.n += 1
    return d.step(x), len(d), issubclass(Derived, Base), isinstance(d, Base), hasattr(d, "none"), bool(d)


def data_class(x, n):
    @dataclasses.dataclass
    class Data:
        a: torch.Tensor
        b: int = 2

        def total(self):
            return self.a * self.b

    class Held:
        log = []

        def note(self, v):
            self.log.append(v)
            return len(Held.log)

    d, h = Data(x), Held()
    broken(x)
    e = Data(x * 2, b=n)
    return e.total() + d.total(), d.b == e.b, Data(1, 2) == Data(1, 2), h.note(n), h.note(2), Held.log, Held().log is h.log


def older_one(x, n):
    class Local:
        pass

    o = Local()
    KEPT.append(o)
    broken(x)
    return isinstance(KEPT[-1], Local), isinstance(KEPT[0], Local), type(KEPT[0]) is type(o), o is KEPT[-1], o == KEPT[0], x + n


def put_on_a_class(x, n):
    class Local:
        def use(self, y):
            return y

    if n % 2:
        Local.use = lambda self, y: y * 5
    Local.more = n
    o = Local()
    broken(x)
    return o.use(x), o.more


def exception(x, n):
    class Own(ValueError):
        def __init__(self, v):
            super().__init__(v)
            self.v = v

    e = Own(n)
    broken(x)
    try:
        raise e
    except Own as caught:
        return caught.v + x, caught.args, caught is e


def leaving(x, n):
    class Local:
        def __init__(self, v):
            self.v = v

    o = Local(1)
    broken(x)
    other = Local(x)
    return type(other) is type(o), type(other).__name__, type(o).__qualname__, other.v, [Local][0] is type(other)


def exceptions(x, n):
    class Own(Exception):
        code = n

        def __str__(self):
            return f"{n} of {self.code}"

    class More(Own if n % 2 else ValueError):
        pass

    def fail(y):
        raise (More if n > 4 else Own)(n, y)

    found = []
    broken(x)
    for kinds in (More, (Own, ValueError)):
        try:
            try:
                fail(x * n)
            finally:
                x = x + 1
        except kinds as e:
            found.append((type(e) is More, isinstance(e, Own), str(e), e.args, getattr(e, "code", None)))
        except Own as e:
            found.append(("other", e.__traceback__ is not None, e.code))
    return x, found, KEPT.append(More) or More.__mro__[1:-2] == Own.__mro__[:1]


def hooks(x, n):
    seen = []

    class Named:
        def __set_name__(self, owner, name):
            self.name = name * n

        def __get__(self, instance, owner):
            return self.name

    class Base:
        times = n

        def __init_subclass__(cls, **more):
            seen.append((cls.__name__, more))

    class Local(Base, more=n):
        first = Named()
        if n % 2:
            times = 3

            def __len__(self):
                return n

    broken(x)
    return x * Local.times * len(Local().first), seen, Local.first, bool(Local())


def class_alone(x, n):
    class Base:
        times = n

    class Local(Base):
        def __init__(self, by=n):
            self.by = by

        @classmethod
        def made(cls, by):
            return cls(by + n)

    other = Local if n % 3 else Base
    broken(x)
    Base.times += 1
    return x * Local.made(2).by + Local().times, Local is other, issubclass(Local, Base), Local.__name__


def subclasses(x, n):
    class Base:
        pass

    class Local(Base):
        pass

    broken(x)
    return x * n, Base.__subclasses__() == [Local], Local.__base__ is Base, vars(Local)["__module__"]


def with_slots(x, n):
    @dataclasses.dataclass(slots=True, order=True)
    class Data:
        a: int
        b: Any = dataclasses.field(default=n, compare=False)

    d = Data(n)
    broken(x)
    d.b = x * d.b
    return d, Data(n) < Data(4), x + Data(1).b


def module(x, n):
    class Scale(torch.nn.Module):
        times = n

        def forward(self, y):
            return y * self.times + n

    made = Scale()
    broken(x)
    first = made(x), Scale()(x)
    Scale.times = 2
    return first, made(x)


PROGRAMS = [
    closure,
    changing_cell,
    several,
    which_one,
    with_attributes,
    generator,
    partly_run,
    instance,
    derived,
    data_class,
    older_one,
    put_on_a_class,
    exception,
    leaving,
]
PROGRAMS += [exceptions, hooks, class_alone, subclasses, with_slots, module]


def outcomes(f: Any) -> list[str]:
    KEPT.clear()
    return [re.sub("0x[0-9a-f]+", "", repr(f(torch.full((2,), 1.0 + i), n))) for i, n in enumerate([4, 4, 5, 6, 4, 0, 1, 7, 8])]


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_those_of_the_plain_function(program: Any) -> None:
    assert outcomes(capture(program)) == outcomes(program)


@pytest.mark.parametrize(
    "program", [closure, several, generator, instance, derived, data_class, exception, leaving, exceptions, hooks, class_alone]
)
def test_they_are_not_captured_anew_by_each_call(program: Any) -> None:
    made: list[Any] = []
    f = capture(program, on_translation=made.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            f(torch.ones(2), 4)
        before = len(made)
        for _ in range(8):
            f(torch.ones(2), 4)
    assert len(made) == before


def scaled(y, by, *, plus=0):
    return y * by + plus


def test_partials_as_arguments() -> None:
    def apply(x, f, g=None):
        return f(x) + 1, f is g, f == g, f.args, f.keywords, f in {f}

    made: list[Any] = []
    compiled = capture(apply, fullgraph=True, on_translation=made.append)
    x = torch.ones(2)
    local = lambda y, k: y - k
    for f in (
        partial(scaled, by=2),
        partial(scaled, by=2),
        partial(scaled, by=x),
        partial(scaled, by=2, plus=x),
        partial(scaled, by=3),
        partial(local, k=1),
        partial(local, k=1),
    ):
        assert repr(compiled(x, f)) == repr(apply(x, f))
    for f in (partial(torch.mul, x), partial(torch.mul, x * 3), partial(torch.mul, x)):
        assert repr(compiled(x, f, f)) == repr(apply(x, f, f))

    def call(x, f):
        return f(x)

    compiled = capture(call, fullgraph=True, on_translation=made.append)
    for _ in range(2):
        compiled(x, partial(scaled, by=2))
    made.clear()
    for k in range(5):
        assert torch.equal(compiled(x * k, partial(scaled, by=2)), x * k * 2)
    assert not made


def test_functions_as_arguments() -> None:
    def apply(x, f, g=None):
        return f(x) + 1, f is g

    def give(n):
        return lambda y: y * n

    def other(n):
        return lambda y: y - n

    made: list[Any] = []
    compiled = capture(apply, fullgraph=True, on_translation=made.append)
    x = torch.ones(2)
    for f in (give(2), give(2), give(2), give(3), other(2), other(3), give(3)):
        assert repr(compiled(x, f)) == repr(apply(x, f))
        assert repr(compiled(x, f, f)) == repr(apply(x, f, f))
        assert repr(compiled(x, f, give(2))) == repr(apply(x, f, give(2)))
    before = len(made)
    for _ in range(5):
        compiled(x, give(2))
    assert len(made) == before
