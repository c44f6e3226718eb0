"""Which values of a tree of modules are covered by its evidence."""

import pytest

torch = pytest.importorskip("torch")
from opmill_guards.guard import DictKeys, Equals, ModuleFacts, TypeIs  # noqa: E402
from opmill_guards.kinds.coverage import ATTRIBUTE, DICT, ITEM, TUPLE_ITEM, Coverage  # noqa: E402
from opmill_guards.source import Attr, InstanceDict, Item, Local  # noqa: E402

ROOT = Local("m")


class Plain(torch.nn.Module):
    rate = 3

    def __init__(self):
        super().__init__()
        self.scale = 2.0


class Asking(Plain):
    def __getattr__(self, name):
        return super().__getattr__(name)


def coverage(cls=Plain, tuples=()):
    fields = ModuleFacts.__struct_fields__
    facts = ModuleFacts(**{name: cls if name == "type" else () for name in fields})
    return Coverage(ROOT, {ROOT: facts}, frozenset(tuples), torch.nn.Module.__getattr__)


TABLE = Item(InstanceDict(ROOT), "_parameters")


@pytest.mark.parametrize(
    ("source", "steps"),
    [
        (ROOT, []),
        (InstanceDict(ROOT), [(DICT, 0, None)]),
        (Item(InstanceDict(ROOT), "scale"), [(DICT, 0, None), (ITEM, 1, "scale")]),
        (Item(TABLE, "w"), [(DICT, 0, None), (ITEM, 1, "_parameters"), (ITEM, 2, "w")]),
        (Attr(ROOT, "scale"), [(ATTRIBUTE, 0, "scale")]),
        (Attr(ROOT, "rate"), None),  # the class decides what it is
        (Attr(Local("other"), "scale"), None),
        (Item(Local("list"), 0), None),
    ],
    ids=str,
)
def test_steps_to_values(source, steps):
    found = coverage()
    assert found.has(source) is (steps is not None)
    if steps is not None:
        assert found.steps == steps and found.number(source) == len(steps)


def test_items_of_tuples_and_of_no_others():
    inner = Item(InstanceDict(ROOT), "sizes")
    assert (
        coverage(tuples=[inner]).has(Item(inner, 1))
        and not coverage().has(Item(inner, 1))
        and not coverage(tuples=[inner]).has(Item(inner, -1))
    )
    found = coverage(tuples=[inner])
    found.number(Item(inner, 1))
    assert found.steps[-1] == (TUPLE_ITEM, 2, 1)


def test_code_of_the_class_decides_what_attributes_are():
    assert not coverage(Asking).has(Attr(ROOT, "scale")) and coverage(Asking).has(Item(InstanceDict(ROOT), "scale"))


@pytest.mark.parametrize(
    ("guard", "settled"),
    [
        (Equals(Attr(ROOT, "scale"), 2.0), True),
        (Equals(Attr(ROOT, "rate"), 3), False),
        (TypeIs(Attr(ROOT, "scale"), float), True),
        (TypeIs(Attr(ROOT, "scale"), Plain), False),  # an object's class may be another
        (TypeIs(ROOT, Plain), True),
        (DictKeys(TABLE, ("w",)), True),
        (DictKeys(Attr(ROOT, "scale"), ("w",)), False),
    ],
    ids=str,
)
def test_guards_that_stay_true(guard, settled):
    assert coverage().covers(guard) is settled
