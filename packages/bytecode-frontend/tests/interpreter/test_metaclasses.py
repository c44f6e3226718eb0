"""Classes as operands: what their metaclass says of iteration, comparison, text and attributes runs when the program comes to it."""

from __future__ import annotations

from collections import namedtuple

import pytest
from differing import differs, told


class Described:
    def __get__(self, instance, owner):
        return told("get")

    def __set__(self, instance, value):
        told(value)


class Meta(type):
    described = Described()

    def __iter__(cls):
        yield told("first")
        yield told("second")

    def __eq__(cls, other):
        told("eq")
        return other is cls or other == 3

    def __hash__(cls):
        return len(told("hash"))

    def __lt__(cls, other):
        return told("lt") == "lt"

    def __str__(cls):
        return told("text")

    @property
    def asked(cls):
        return told("asked")


class Items(type):
    def __getitem__(cls, i):
        told(i)
        if i > 2:
            raise IndexError
        return i

    def __repr__(cls):
        return told("repr")


class A(metaclass=Meta):
    pass


class B(metaclass=Items):
    pass


Pair = namedtuple("Pair", "left right")
PROGRAMS = {
    "iteration": lambda x: ([*A], [2 * i for i in B], x + 1),
    "comparison": lambda x: (A == 3, A == 4, A != A, A < A, x + 1),
    "keys": lambda x: ({A: 1}[A], A in {4: 1}, x + 1),
    "text": lambda x: (str(A), f"{A}", str(B), repr(B), x + 1),
    "attributes": lambda x: (A.asked, A.described, x + 1),
    "what type itself says": lambda x: (type[int], Pair.left.__doc__, x + 1),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_metaclasses_of_the_program(program):
    differs(program)


def test_descriptors_of_c_are_read_of_their_class():
    differs(lambda x: (Pair.left.__get__(Pair(x, 1)) + 1, x + 1), whole=False)
