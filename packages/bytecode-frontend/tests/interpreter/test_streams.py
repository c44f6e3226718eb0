"""What a program makes anew at each call although its parts are constants, and where its words go: streams, buffers, iterators of C,
classes by ``type``."""

from __future__ import annotations

import contextlib
import io
import re
import sys

import pytest
import torch

from opmill_bytecode_frontend import capture


def written(f, x):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        return f(x), out.getvalue()


def as_plain(f, whole):
    """Three calls, each with another ``sys.stdout``, give and print what they do plainly."""
    x = torch.ones(3)
    compiled = capture(f, "eager", fullgraph=whole)
    for _ in range(3):
        assert str(written(compiled, x)) == str(written(f, x))


def redirected(x):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print("in")
        print("too", file=sys.stdout)
    print("after")
    return out.getvalue(), x + 1


def exchanged(x):
    old, sys.stdout = sys.stdout, io.StringIO()
    try:
        print("lost")
    finally:
        sys.stdout = old
    print("kept")
    return x + 1


def said(x):
    sys.stdout.write("w\n")
    print("a", x.shape, file=sys.stdout)
    return x + 1


@pytest.mark.parametrize("function", [redirected, exchanged, said], ids=lambda f: f.__name__)
def test_words_go_where_the_program_sends_them(function):
    as_plain(function, whole=False)


def buffers(x):
    a, b = bytearray(b"ab"), bytearray(3)
    a += b"c"
    b[0] = 1
    view = memoryview(bytearray(b"abc"))
    view[0] = 100
    return bytes(a), b, bytes(view), x + 1


def test_buffers_are_new_ones_at_each_call():
    as_plain(buffers, whole=False)


def found(x):
    matches = re.finditer("a", "banana")
    return [m.start() for m in re.finditer("a", "banana")], next(matches).span(), [m.end() for m in matches], x + 1


def test_iterators_of_c_are_new_ones_at_each_call():
    as_plain(found, whole=True)


class Base:
    k = 4


def made_by_type(x):
    one = type("One", (), {"a": 3, "f": lambda self, v: v * self.a})
    two = type("Two", (Base, one), dict(m=2))
    return one.a, two().f(x), two().k, two.m, one.__module__, two.__name__, isinstance(two(), Base), type(two()) is two


def test_classes_made_by_type():
    as_plain(made_by_type, whole=True)
    classes = capture(lambda x: (type("C", (Base,), {}), x + 1), "eager", fullgraph=True)
    first, second = classes(torch.ones(1))[0], classes(torch.ones(1))[0]
    assert first is not second and first.__mro__[1:] == second.__mro__[1:] == Base.__mro__ and first.__module__ == __name__


def test_views_of_memory_live_as_long_as_the_program_keeps_them():
    def f(o, x):
        part = bytes(memoryview(o)[1:3])
        o.append(1)
        view = memoryview(o)
        view[0] = 9
        view.release()
        o += b"x"
        return part, memoryview(o) == o, bytes(o), x + 1

    captured = capture(f, "eager")
    for _ in range(3):
        o, other = bytearray(b"12345678"), bytearray(b"12345678")
        assert str(captured(o, torch.ones(1))) == str(f(other, torch.ones(1)))
        o += b"x"
