"""Exceptions of builtin operations caught in captured code: class and message are Python's, and the graph does not break for them."""

from __future__ import annotations

import textwrap
from collections import deque

import pytest
import torch

from opmill_bytecode_frontend import capture

STATEMENTS = """
l[3] = 1 | del l[3] | l[3] | l.pop(3) | d[4] | d[4] = 1 | del d[4] | l[10**30] | l[10**30] = 1 | t[10**30] | l.pop(10**30) | [].pop() | d.pop(); d.pop()
l["a"] | l["a"] = 1 | del l["a"] | l.pop("a") | t["a"] | d["a"] | d["a"] = 1 | l.insert("a", 1) | l[1.0] | l[1:"a"] | l[::0] | l[::2] = [1, 2, 3]
l * "a" | "a" * l | t * "a" | t * 1.5 | t * [1] | l + t | l + 1 | 1 + l | l += 1 | l < t | [1, "a"] < ["b", "a"] | {} + {} | {1} & [1] | d + [1]
l[:] = 1 | l[::2] = 1 | l.extend(1) | l.remove(5) | t.index(5) | x, y = l | x, y, *z = l | x, y = 1 | x, = 1, 2, 3 | x, y = iter([1, 2, 3])
l.foo | l.foo = 1 | d.foo = 1 | {}[l] | {l: 1} | {l} | hash(l) | {1: 2}[3] | {}.popitem() | set().pop() | {1}.remove(2) | frozenset([1]).add(1)
dict([1]) | dict([(1, 2, 3)]) | dict(1) | {**1} | [*1] | max() | max([]) | min(1) | sum(["a"]) | sum(1) | int("x") | int([]) | float("x") | float([]) | complex([])
int(object()) | len(5) | len(iter([])) | range("a") | range(1, 2, 0) | sorted(1) | sorted([1, "a"]) | zip(1) | list(zip([1], [1, 2], strict=True)) | next(iter([])) | next(5)
abs("a") | -"a" | not_defined | chr(-1) | ord("ab") | "a" % 1 | "%d" % "a" | "{}".format() | "a".join([1]) | "a" + 1 | 1 + "a" | "a"[5] | 1 / 0 | 2 ** "a" | 1 << -1
none(1) | none(1, 2) | one() | one(1, 2) | some() | some(1, 2, 3) | some(1, b=2, c=3) | some(1, a=1) | some(b=1) | named(1) | named(1, 2, k=1) | named(1, 2, 3, k=1, m=2) | named()
first(a=1, b=2) | first(a=1) | first(1) | first(1, 2, 3) | many(1, a=2) | many() | many(1, 2, 3, d=1) | both() | three() | three(1) | one(**{"x": 1})
one(**{"a": 1}, **{"a": 2}) | one(a=1, **{"a": 2}) | one(**{1: 1}) | one(**1) | one(1, *2) | Kind().m() | Kind().m(1, 2) | Kind.m()
"""
CASES = [case.strip() for line in STATEMENTS.strip().splitlines() for case in line.split(" | ")]
PROGRAM = """
def program(x_):
    l, d, t = [1], deque([1]), (1,)
    def none(): pass
    def one(a): pass
    def some(a, b=2): pass
    def named(a, *, k, m=3): pass
    def first(a, /, b): pass
    def many(a, /, b=1, *c, d, e, g, **kw): pass
    def both(*, a, b): pass
    def three(a, b, c): pass
    try:
        {statement}
    except Exception as exc:
        return type(exc), str(exc), x_ + 1
"""


class Kind:
    def m(self, a):
        pass


def program(statement):
    namespace = {"deque": deque, "Kind": Kind}
    exec(textwrap.dedent(PROGRAM).format(statement=statement), namespace)
    return namespace["program"]


def told(statement, make, x):
    kind, text, y = make(program(statement))(x)
    return kind, text, y.tolist()


@pytest.mark.parametrize("statement", CASES)
def test_errors_of_builtin_operations(statement):
    x = torch.ones(2)
    assert told(statement, lambda f: capture(f, fullgraph=True), x) == told(statement, lambda f: f, x)


@pytest.mark.parametrize("statement", ["l.append()", "l.append(1, 2)", "l.pop(1, 2)", "l.sort(lambda x: x)", "d.pop(1)", "one(*1)"])
def test_calls_that_do_not_fit_run_natively(statement):
    x, breaks = torch.ones(2), []
    captured = told(statement, lambda f: capture(f, on_break=breaks.append), x)
    assert captured == told(statement, lambda f: f, x)
    assert [b.code for b in breaks] in (["FE022"], ["FE061"])
