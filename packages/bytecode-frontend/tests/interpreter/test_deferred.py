"""Modules that torch imports late: what stands for them, until they are there."""

import subprocess
import sys
from types import ModuleType

import pytest

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


ASKED = """
import sys, torch
from opmill_bytecode_frontend import capture

def program(x):
    y = x.sin()
    found = {asked}
    return y + 1, found

x, breaks = torch.ones(3), []
compiled = capture(program, "eager", on_break=breaks.append)
got = [compiled(x) for _ in range(2)]
imported = "torch._dynamo" in sys.modules
want = program(x)
assert all(torch.equal(want[0], y) and (found is want[1] or found == want[1]) for y, found in got), got
print(imported, len(breaks))
"""


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("torch._dynamo.graph_break()", "True 1"),
        ("torch._dynamo", "True 0"),
        ("getattr(torch._dynamo, 'no such thing', None)", "True 0"),
        ("torch._dynamo.mark_static(x, 0)", "False 0"),
    ],
)
def test_what_it_has_besides_is_what_the_module_has(asked, told):
    """In a process of its own, where nothing has imported it."""
    run = subprocess.run([sys.executable, "-c", ASKED.format(asked=asked)], capture_output=True, text=True)
    assert run.stdout.strip() == told, run.stderr
