"""Programs that tell what they run themselves, and how they are compared with their captured form."""

from __future__ import annotations

from collections import namedtuple

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
    """``f(x)`` gives what it gives plainly, and the program's own code runs in the same order: on a miss, on a hit, and whole where it is
    said."""
    x = torch.ones(3)
    compiled = capture(f, "eager", fullgraph=whole)
    want = run(f, x)
    for _ in range(2):
        got = run(compiled, x)
        assert str(got) == str(want)


class Blocked:
    __add__ = __iadd__ = __radd__ = __eq__ = __len__ = __getitem__ = __iter__ = __contains__ = __call__ = __neg__ = __float__ = (
        __reversed__
    ) = None


class Doubling(namedtuple("Doubling", "x y", defaults=[3])):
    def __new__(cls, x, y=0):
        told("new")
        return super().__new__(cls, x, y * 2)


Plain = namedtuple("Plain", "a b", defaults=[3])


def given(*args, **kwargs):
    return args, kwargs
