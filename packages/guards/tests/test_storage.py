"""The builtin storage of containers, whatever their subclasses say."""

from collections import OrderedDict, deque
from types import MappingProxyType

import pytest

from opmill_guards.storage import items_of, keys_of, length_of


class Lies(dict):
    def __len__(self):
        return 9

    def __iter__(self):
        return iter("xyz")

    def keys(self):
        return ["x"]


def test_subclasses_are_not_asked():
    assert keys_of(Lies(a=1)) == ["a"] and length_of(Lies(a=1)) == 1


def test_ordered_dicts_have_an_order_of_their_own():
    moved = OrderedDict(a=1, b=2)
    moved.move_to_end("a")
    assert keys_of(moved) == ["b", "a"]


def test_the_dictionary_of_a_class():
    assert "__len__" in keys_of(vars(Lies)) and length_of(vars(Lies)) == len(vars(Lies))
    assert keys_of(MappingProxyType({"a": 1})) == ["a"]


@pytest.mark.parametrize("value", [(1, 2), [1, 2], {1, 2}, frozenset({1, 2}), deque([1, 2]), {1: 1, 2: 2}])
def test_lengths(value):
    assert length_of(value) == 2


@pytest.mark.parametrize("value", ["ab", 2, None, range(2)])
def test_what_is_no_container(value):
    assert length_of(value) is None
    with pytest.raises(TypeError):
        keys_of(value)


@pytest.mark.parametrize("base", [list, tuple, set, frozenset, deque])
def test_items_of_subclasses_are_those_that_are_there(base):
    lying = type("Lies", (base,), {"__iter__": lambda self: iter("xyz")})
    assert items_of(lying([1])) == [1]
    with pytest.raises(TypeError):
        items_of({1: 2})
