"""How long a builtin container is."""

from collections import deque

import pytest

from opmill_guards.guard import Length
from opmill_guards.source import Local

TWO = Length(Local("x"), 2)


@pytest.mark.parametrize("kind", [tuple, list, set, deque, dict.fromkeys])
def test_of_each_container(says, kind):
    assert says(TWO, x=kind([1, 2])) == ""
    assert says(TWO, x=kind([1, 2, 3])) == "x: expected length 2, found length 3"


def test_a_class_that_says_something_else_is_not_asked(says):
    class Longer(list):
        def __len__(self):
            return 7

    assert says(TWO, x=Longer([1, 2])) == ""


def test_what_is_no_container_has_none(says):
    assert says(TWO, x="ab") == "x: expected length 2, found a str"
