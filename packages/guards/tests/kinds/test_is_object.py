"""The identity of a value."""

from opmill_guards.guard import Is
from opmill_guards.source import Local


def test_equal_is_not_enough(says):
    one = [1]
    assert says(Is(Local("x"), one), x=one) == ""
    assert says(Is(Local("x"), None), x=0) == "x: expected None, found 0"


def test_what_looks_alike_is_told_apart_by_its_address(says):
    one, other = [1], [1]
    assert says(Is(Local("x"), one), x=other) == f"x: expected [1] at {id(one):#x}, found [1] at {id(other):#x}"
