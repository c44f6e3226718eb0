"""Two sources that give one object."""

from opmill_guards.guard import SameObject
from opmill_guards.source import Attr, Local


def test_one_object(says):
    one = [1]
    assert says(SameObject(Local("a"), Local("b")), a=one, b=one) == ""
    assert "expected the same object as b, found another object" in says(SameObject(Local("a"), Local("b")), a=one, b=[1])


def test_by_a_path(says):
    class Holder:
        pass

    one, holder = object(), Holder()
    holder.item = one
    guard = SameObject(Local("a"), Attr(Local("h"), "item"))
    assert says(guard, a=one, h=holder) == ""
    holder.item = object()
    assert "the same object as h.item" in says(guard, a=one, h=holder)
