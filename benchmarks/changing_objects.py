"""What rows of ``changing.txt`` are made of. Each program has a copy of its own of all of this."""

# ruff: noqa
import abc, argparse, array, builtins, collections.abc, copyreg, numbers, time, collections, configparser, contextvars, copy, dataclasses, datetime, decimal, enum, fractions, functools, gc, inspect, io, itertools, logging, operator, os, pathlib, queue, random, re, string, struct, sys, tempfile, threading, types, typing, uuid, warnings, weakref
import numpy as np
import torch
import torch.nn.utils.prune

SEEN, HANDLES = [], []


class Plain:
    k = 0

    def method(self):
        return (1, self.k)


class Other(Plain):
    def method(self):
        return (2, self.k)


def make_function():
    def made(a=1):
        return ("made", a)

    return made


def make_keyword_function():
    def made(*, b=1):
        return ("made", b)

    return made


def make_closure():
    c = 1

    def made():
        return c

    return made


def f_one(a=1):
    return ("one", a)


def f_two(a=1):
    return ("two", a)


class WithCached:
    k = 1

    @functools.cached_property
    def p(self):
        return [self.k]


class WithProperty:
    k = 1

    @property
    def p(self):
        return [self.k]


class Meta(type):
    answer = True

    def __instancecheck__(cls, it):
        return cls.answer


def WithCheck():
    return Meta("W", (), {})


class WithLength:
    n = 1

    def __len__(self):
        return self.n

    def __iter__(self):
        return iter(range(self.n))

    def __call__(self):
        return self.n

    def __eq__(self, o):
        return self.n == o

    def __lt__(self, o):
        return self.n < o

    def __hash__(self):
        return self.n

    def __getitem__(self, i):
        return (self.n, i)

    def __contains__(self, i):
        return self.n == i

    def __getattr__(self, name):
        return (name, self.n)


def module_with_getattr():
    m = types.ModuleType("m")
    m.n = 0
    exec("def __getattr__(name): return (name, n)", m.__dict__)
    return m


def make_dataclass():
    @dataclasses.dataclass
    class D:
        a: int = 1

    return D()


class Slotted:
    __slots__ = ("a",)


class Numbered:
    n = 0

    def __get__(self, o, c):
        return self.n


def WithDescriptor():
    return type("C", (), {"d": Numbered()})()


def with_items(t):
    t.items = []
    return t


@typing.runtime_checkable
class HasColour(typing.Protocol):
    colour: int


@typing.runtime_checkable
class CanPaint(typing.Protocol):
    def paint(self): ...


def make_plain(n):
    p = Other()
    p.k = n
    return p


LAST = [0]


def import_it(name):
    if name not in sys.modules:
        return None
    import stale_third

    return stale_third.k


def retained_gradient(o):
    z = o * 2
    z.retain_grad()
    torch.autograd.grad((z * 3).sum(), o)
    return None if z.grad is None else z.grad + 1


def set_and_read(it):
    it.k = 1
    return it.k


def entered(it):
    with it as v:
        return v


def matched(it, cls):
    match it:
        case cls(v):
            return v
