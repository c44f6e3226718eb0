"""Sources that all give different objects."""

import pytest

from opmill_guards.guard import AllDistinct
from opmill_guards.source import Local

THREE = AllDistinct((Local("a"), Local("b"), Local("c")))


def test_equal_objects_are_different_ones(says):
    assert says(THREE, a=[], b=[], c=[]) == ""


@pytest.mark.parametrize(("places", "found"), [("aab", "a is b"), ("aba", "a is c"), ("abb", "b is c")])
def test_which_are_one_is_told(says, places, found):
    objects = {"a": object(), "b": object()}
    given = dict(zip("abc", (objects[place] for place in places), strict=True))
    assert says(THREE, **given) == f"a, b, c: expected different objects, found {found}"
