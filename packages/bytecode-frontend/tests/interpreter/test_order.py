"""What builtins ask the program for: in the order and as often as in Python."""

from __future__ import annotations

import decimal
import functools
import itertools

import pytest
from differing import Blocked, attempt, differs, generated, told

# ---- the order in which builtins take items and call functions ---------------------------------------------------------------------


class Adding:
    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        return Adding(self.v + told(("add", self.v, other))[2])


ITERATING = {
    "min": lambda x: (min(generated(3, 1, 2), key=lambda v: told(-v)), x + 1),
    "max": lambda x: (max(generated(3, 1, 2), key=told), x + 1),
    "reduce": lambda x: (functools.reduce(lambda a, b: told(a + b), generated(1, 2, 3)), x + 1),
    "sum": lambda x: (sum(generated(1, 2, 3), Adding(0)).v, sum([0.1] * 10), sum([True, 2.5, x.sum()]), x + 1),
    "accumulate": lambda x: (next(a := itertools.accumulate(generated(1, 2, 3), lambda p, q: told(p + q))), told("made"), list(a), x + 1),
    "product": lambda x: (p := itertools.product(generated(1, 2), generated(3, 4)), told("made"), list(p), x + 1)[1:],
    "permutations": lambda x: (p := itertools.permutations(generated(1, 2)), told("made"), list(p), x + 1)[1:],
    "cycle": lambda x: (c := itertools.cycle(generated(1, 2)), told("made"), [next(c) for _ in range(5)], x + 1)[1:],
    "zip_longest": lambda x: (z := itertools.zip_longest(generated(1, 2), generated(3)), told("made"), next(z), list(z), x + 1)[1:],
    "islice": lambda x: (list(itertools.islice(g := generated(*range(9)), 0, 4, 2)), next(g), list(itertools.islice(g, 1, None, 3)), x + 1),
    "pairwise": lambda x: (p := itertools.pairwise(generated(1, 2, 3)), told("made"), list(p), x + 1)[1:],
    "groupby": lambda x: ([(k, list(g)) for k, g in itertools.groupby(generated(1, 1, 2, 3), lambda v: told(v // 2))], x + 1),
    "groups left": lambda x: (g := itertools.groupby(generated(1, 1, 2, 2)), a := next(g), b := next(g), list(a[1]), list(b[1]), x + 1)[3:],
}


@pytest.mark.parametrize("name", ITERATING)
def test_items_are_taken_when_python_takes_them(name):
    differs(ITERATING[name])


def refused(x):
    one = (
        itertools.cycle,
        itertools.accumulate,
        itertools.product,
        itertools.pairwise,
        itertools.zip_longest,
        itertools.groupby,
        itertools.tee,
        enumerate,
    )
    said = [attempt(lambda f=f: f(5)) for f in one]
    return said, [
        attempt(lambda: itertools.islice([1], -1)),
        attempt(lambda: itertools.combinations([1], -1)),
        attempt(lambda: itertools.count("a")),
        attempt(lambda: itertools.repeat(1, "a")),
        attempt(lambda: itertools.tee([1], -1)),
        attempt(lambda: itertools.product([1], repeat=-1)),
        attempt(lambda: enumerate([1], "a")),
        attempt(lambda: list(zip([1, 2], [1], strict=True))),
        attempt(lambda: list(zip([1], [1], [1, 2], strict=True))),
        attempt(lambda: list(zip([1], [1, 2], [1], strict=True))),
        attempt(lambda: sum(["a"], "")),
        x + 1,
    ]


def test_iterators_are_refused_when_they_are_made():
    differs(refused)


# ---- operators and what they ask ---------------------------------------------------------------------------------------------------


class Left:
    def __eq__(self, other):
        told("Left.eq")
        return NotImplemented


class Right(Left):
    def __ne__(self, other):
        told("Right.ne")
        return NotImplemented


def test_an_object_is_asked_for_equality_where_it_has_no_inequality():
    differs(
        lambda x: (Left() != Right(), Right() != Left(), Left() != Left(), Left() == 3, Left().__ne__(3), object.__ne__(Left(), 3), x + 1)
    )


def blocked(x):
    b = Blocked()

    def added():
        c = b
        c += 1

    asked = (
        added,
        lambda: b + 1,
        lambda: 1 + b,
        lambda: b == 1,
        lambda: b != 1,
        lambda: len(b),
        lambda: b[0],
        lambda: iter(b),
        lambda: 1 in b,
        lambda: b(),
        lambda: -b,
        lambda: float(b),
        lambda: reversed(b),
        lambda: hash(b),
        lambda: decimal.Decimal(1) < 1j,
    )
    return [attempt(f) for f in asked], x + 1


def test_methods_that_are_none_are_refused_as_python_refuses():
    differs(blocked)


class Index:
    def __init__(self, i):
        self.i = i

    def __index__(self):
        return told(self.i)


def test_methods_of_sequences_called_by_name_ask_for_an_index():
    differs(
        lambda x: ("a".__mul__(Index(2)), [1].__mul__(Index(2)), (1,).__rmul__(Index(2)), range(9).__getitem__(Index(3)), x + 1),
        whole=False,
    )
    differs(
        lambda x: (attempt(lambda: [1].__add__(3)), "abc".__getitem__(slice(1, 3)), attempt(lambda: "a".__mod__(1)), x + 1), whole=False
    )
    differs(lambda x: ((1).__add__("a"), "a".__eq__(1), {}.__or__([]), x + 1))


class Meta(type):
    def __instancecheck__(cls, value):
        return told(value) == 3

    def __subclasscheck__(cls, other):
        return told(True)


class Checked(metaclass=Meta):
    pass


def test_metaclasses_are_asked_about_instances():
    differs(
        lambda x: (isinstance(3, Checked), isinstance(4, (str, Checked)), isinstance(Checked(), Checked), issubclass(int, Checked), x + 1)
    )


class Whole:
    def __init__(self, index, truth):
        self.index, self.truth = index, truth

    def __index__(self):
        return self.index

    def __bool__(self):
        return self.truth


@pytest.mark.parametrize(
    "reverse", [True, 0, 1.5, None, Whole(1, False), Whole(0, True)], ids=lambda r: type(r).__name__ + str(getattr(r, "index", ""))
)
def test_what_tells_the_order_is_a_whole_number_or_a_truth_as_in_this_python(reverse):
    def f(x, reverse):
        try:
            items = sorted([2, 3, 1], reverse=reverse)
            items.sort(reverse=reverse)
        except TypeError as error:
            return x, str(error)
        return x * items[0], items

    differs(lambda x: f(x, reverse))
