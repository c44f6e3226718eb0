"""What only a Python function can tell."""

from opmill_guards.guard import Predicate
from opmill_guards.source import Local


def test_the_function_is_asked(says):
    even = Predicate(Local("n"), lambda n: n % 2 == 0, "even")
    assert says(even, n=4) == ""
    assert says(even, n=5) == "n: expected even, found 5"


def test_anything_that_is_true_is_a_yes(says):
    assert says(Predicate(Local("x"), lambda x: x, "not empty"), x=[1]) == ""
    assert says(Predicate(Local("x"), lambda x: x, "not empty"), x=[]) != ""


def test_what_raises_does_not_hold(says):
    assert says(Predicate(Local("x"), lambda x: 1 // x, "divides"), x=0) == "x: expected divides, found 0"
