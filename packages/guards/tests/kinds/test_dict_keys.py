"""Which keys a dict has, in order."""

from collections import OrderedDict

from opmill_guards.guard import DictKeys
from opmill_guards.source import Local

GUARD = DictKeys(Local("d"), ("a", "b"))


def test_keys_and_their_order(says):
    assert says(GUARD, d={"a": 1, "b": 2}) == ""
    assert says(GUARD, d={"b": 1, "a": 2}) == "d: expected keys ['a', 'b'], found keys ['b', 'a']"
    assert says(GUARD, d={"a": 1}) == "d: expected keys ['a', 'b'], found keys ['a']"
    assert says(GUARD, d={"a": 1, "b": 2, "c": 3}) != ""


def test_an_ordered_dict_has_an_order_of_its_own(says):
    moved = OrderedDict(a=1, b=2)
    assert says(GUARD, d=moved) == ""
    moved.move_to_end("a")
    assert says(GUARD, d=moved) == "d: expected keys ['a', 'b'], found keys ['b', 'a']"


def test_equal_keys_are_one(says):
    assert says(DictKeys(Local("d"), (1, "x")), d={1.0: 0, "x": 0}) == ""
