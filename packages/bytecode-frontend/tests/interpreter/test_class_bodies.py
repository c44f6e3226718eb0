"""Class statements in captured code: captured where nothing of the program runs when the class is made, else run natively."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import typing

import pytest
import torch

from opmill_bytecode_frontend import capture

T = typing.TypeVar("T")


class Outer:
    def __init__(self, k):
        self.k = k

    def step(self, x):
        return x * self.k


def members(x, n=3):
    class Local(Outer):
        """doc"""

        k, other = 4, n
        names: int = 5

        def step(self, x):
            return super().step(x) + self.other

        @property
        def twice(self):
            return self.k * 2

        @twice.setter
        def twice(self, v):
            self.k = v

        @classmethod
        def make(cls, k):
            return cls(k)

        @staticmethod
        def plus(a):
            return a + 1

    o = Local.make(2)
    o.twice = 7
    return (
        o.step(x),
        o.twice,
        Local.plus(x),
        Local.__name__,
        Local.__doc__,
        isinstance(o, Outer),
        isinstance(o, Local),
        type(o) is Local,
        Local.__annotations__,
        issubclass(Local, Outer),
    )


def tensors_inside(x):
    y = x * 2

    class A:
        w = y + 1

        def __add__(self, o):
            return self.w + o + y

        def me(self):
            return __class__

    a = A()
    return a + 1, a.me() is A, A.w


def own_exception(x):
    class E(ValueError):
        def __init__(self, a):
            super().__init__(a)
            self.a = a

    try:
        raise E(3)
    except E as e:
        return e.a, e.args, x + 1, type(e).__name__


def derived(x):
    class A:
        def get(self):
            return super().__repr__ is not None, __class__.__name__

    class B(A):
        pass

    return B().get(), B.__mro__[1] is A, x + 1


def slots_and_equality(x):
    class A:
        for i in range(3):
            pass
        del i
        l = [1, 2]

        def __eq__(self, o):
            return True

        __slots__ = ("q",)

    a = A()
    a.q = x
    A.l.append(3)
    try:
        hash(a)
        h = 1
    except TypeError as e:
        h = str(e)
    match a:
        case A(q=z):
            pass
    return z + 1, A.l, h, A.__slots__


def data_class(x):
    @dataclasses.dataclass
    class P:
        x: int
        y: list = dataclasses.field(default_factory=list)

        def norm(self):
            return self.x + 1

    p = P(x)
    p.y.append(2)
    return p.norm(), p.y, dataclasses.replace(p, x=x * 3).x, repr(P(1))


def enumeration(x):
    class C(enum.Enum):
        A = 1
        B = 2

        def nxt(self):
            return C.B

    return C.A.nxt().name, x + C.B.value, [c.name for c in C]


def named_tuple(x):
    P = collections.namedtuple("P", "a b")
    p = P(x, 2)
    return p.a + p.b, p._fields, repr(P(1, 2))


def typed_tuple(x):
    class N(typing.NamedTuple):
        a: int
        b: int = 3

        def s(self):
            return self.a + self.b

    return N(x).s(), N(x).b


def own_metaclass(x):
    class M(type):
        def __call__(cls, *a):
            return super().__call__(*a)

        def hello(cls):
            return 5

    class A(metaclass=M):
        def __init__(self, k):
            self.k = k

    return A(x).k + 1, A.hello()


def abstract(x):
    class A(abc.ABC):
        @abc.abstractmethod
        def f(self): ...

    class B(A):
        def f(self):
            return x + 1

    try:
        A()
    except TypeError as e:
        s = str(e)
    return B().f(), s


def init_subclass(x):
    class A:
        def __init_subclass__(cls, **kw):
            cls.kw = kw

    class B(A, z=3):
        pass

    return B.kw, x + 1


def cached(x):
    class A:
        @functools.cached_property
        def f(self):
            return x + 1

        @functools.lru_cache
        def g(self):
            return 3

    a = A()
    return a.f, a.f is a.f, a.g()


def module(x):
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.l = torch.nn.Linear(2, 2)

        def forward(self, z):
            return z * 2

    return M()(x)


def assigned(x):
    class A:
        pass

    A.k = x + 1
    a = A()
    a.z = 3
    del a.z
    setattr(A, "q", 5)
    return a.k, A.q, hasattr(a, "z")


def builtin_bases(x):
    class A(dict):
        def __missing__(self, k):
            return k * 2

    class L(list):
        def total(self):
            return sum(self)

    class S(str):
        def up(self):
            return self.upper()

    class Whole(int):
        pass

    return A()[x].sum().item(), L([x, x]).total(), S("a").up(), Whole(5) + 1


def generic(x):
    class G(typing.Generic[T]):
        pass

    return x + 1, G().__class__.__name__


def made_twice(x):
    def mk(n):
        class K:
            def __init__(self, v):
                self.v = v * n

            def __len__(self):
                return n

        return K

    A, B = mk(2), mk(3)
    if x.sum().item() > 0:
        y = A(x).v
    return y + B(x).v, len(A(1)), A is B, isinstance(A(1), B)


def context_and_iterator(x):
    class A:
        def __enter__(self):
            return self

        def __exit__(self, *a):
            self.seen = a[0]
            return True

    a = A()
    with a:
        raise KeyError

    class It:
        def __init__(self):
            self.n = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.n += 1
            if self.n > 3:
                raise StopIteration
            return self.n

    return a.seen, list(It()), x + 1


def hashed(x):
    class A:
        def __init__(self):
            self.x = x

        def __getattr__(self, n):
            return n

        def __eq__(self, o):
            return isinstance(o, A)

        def __hash__(self):
            return 3

    return {A(): 1}[A()], A().foo, A() == A(), A() != 5, x + 1


def escaping(x, n):
    class A(Outer):
        w = x + 1

        def m(self):
            return super().step(x), __class__

        n_ = n

    return A, A(2), A.m


WHOLE = [
    members, tensors_inside, own_exception, derived, slots_and_equality, context_and_iterator, hashed, data_class, enumeration, named_tuple, typed_tuple,
    own_metaclass, abstract, assigned, generic,
]  # fmt: skip
BROKEN = [init_subclass, cached, module, builtin_bases, made_twice]


def plain(result):
    return repr(result)


@pytest.mark.parametrize("function", [*WHOLE, *BROKEN])
def test_results_are_those_of_the_plain_function(function):
    compiled = capture(function)
    want = plain(function(torch.ones(2)))
    for _ in range(3):
        assert plain(compiled(torch.ones(2))) == want


@pytest.mark.parametrize("function", WHOLE)
def test_captured_whole(function):
    assert plain(capture(function, fullgraph=True)(torch.ones(2))) == plain(function(torch.ones(2)))


def test_each_call_makes_a_class_of_its_own():
    made = []
    compiled = capture(escaping, fullgraph=True, on_translation=made.append)
    (first, a, method), (second, b, _) = [compiled(torch.ones(2), 1) for _ in range(2)]
    assert len(made) == 1 and first is not second and first.__mro__[1:] == second.__mro__[1:] == Outer.__mro__
    assert type(a) is first and type(b) is second and first.m is method and first.n_ == 1
    assert first.__qualname__ == "escaping.<locals>.A" and first.__module__ == __name__ and first.w.tolist() == [2.0, 2.0]
    assert a.m()[0].tolist() == [2.0, 2.0] and a.m()[1] is first and b.m()[1] is second


def test_super_without_a_class_or_an_object():
    def f(x):
        class A:
            __class__ = 413

            def none():
                return super()

            def deleted(self):
                del self
                return super()

            def other(self):
                return super().__init__

        told = []
        for call in (A.none, lambda: A().deleted(), lambda: A.other(5)):
            try:
                call()
            except (RuntimeError, TypeError) as exc:
                told.append(str(exc))
        return told, A().__class__, x + 1

    assert plain(capture(f)(torch.ones(2))) == plain(f(torch.ones(2)))
