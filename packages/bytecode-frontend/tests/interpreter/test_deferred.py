"""Modules that torch imports late: what stands for them, until they are there."""

import sys
from types import ModuleType

from opmill_bytecode_frontend.values.deferred import MARKS, standing_in


def test_marks_do_nothing_while_the_module_is_not_there(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    stands = standing_in("torch", "_dynamo")
    assert [getattr(stands, name)(None, 0, min=2) for name in MARKS] == [None] * len(MARKS)


def test_the_module_itself_where_it_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._dynamo", ModuleType("torch._dynamo"))
    assert standing_in("torch", "_dynamo") is None


def test_nothing_stands_for_others():
    assert standing_in("torch", "nn") is None and standing_in("other", "_dynamo") is None
