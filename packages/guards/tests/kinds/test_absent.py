"""A key that a dict does not have."""

from types import MappingProxyType

from opmill_guards.guard import Absent
from opmill_guards.source import InstanceDict, Local


def test_of_a_dict(says):
    guard = Absent(Local("d"), "k")
    assert says(guard, d={"other": 1}) == ""
    assert says(guard, d={"k": 1}) == "d: expected no key 'k', found it is 1"
    assert says(guard, d=[]) == "d: expected no key 'k', found a list"


def test_a_class_that_says_something_else_is_not_asked(says):
    class Hides(dict):
        def __contains__(self, key):
            return False

    assert says(Absent(Local("d"), "k"), d=Hides(k=1)) == "d: expected no key 'k', found it is 1"


def test_of_the_dictionary_of_a_class(says):
    class Some:
        k = 1

    assert type(vars(Some)) is MappingProxyType
    assert says(Absent(InstanceDict(Local("c")), "other"), c=Some) == ""
    assert "it is 1" in says(Absent(InstanceDict(Local("c")), "k"), c=Some)
