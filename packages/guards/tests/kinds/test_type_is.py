"""The exact type of a value."""

from opmill_guards.guard import TypeIs
from opmill_guards.source import Item, Local


def test_derived_classes_are_others(says):
    class Derived(list):
        pass

    assert says(TypeIs(Local("x"), list), x=[]) == ""
    assert says(TypeIs(Local("x"), list), x=Derived()).startswith("x: expected type list, found type ")
    assert says(TypeIs(Local("x"), int), x=True) == "x: expected type int, found type bool"


def test_by_a_path(says):
    guard = TypeIs(Item(Local("x"), 1), str)
    assert says(guard, x=[0, "a"]) == ""
    assert says(guard, x=[0, 1]) == "x[1]: expected type str, found type int"
