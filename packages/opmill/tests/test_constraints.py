"""Sizes and what holds of them, as they are shown."""

import pytest
import torch

import opmill
from opmill.constraints import constraints, size_text
from opmill.explain import explanation_of
from opmill_guards.guard import SizeRelation
from opmill_guards.source import Local, TensorProperty

ROWS, COLUMNS = (TensorProperty(Local(name), "size", 0) for name in "xy")
SHOWN = {
    "limits of one size are one line": (
        [("s0 >= 4", (ROWS,)), ("s0 <= 1024", (ROWS,)), ("s0 >= 9", (ROWS,)), ("s0 < 1000", (ROWS,))],
        ["9 <= x.size(0) <= 999"],
    ),
    "each size has its own": ([("s0 >= 4", (ROWS,)), ("s0 > 4", (COLUMNS,))], ["4 <= x.size(0)", "5 <= y.size(0)"]),
    "divisors": ([("((s0)%(4)) == 0", (ROWS,))], ["Eq(Mod(x.size(0), 4), 0)"]),
    "quotients": ([("((s0)//(4)) != s1", (ROWS, COLUMNS))], ["Ne(floor(x.size(0)/4), y.size(0))"]),
    "sums": ([("s0 + 2*s1 - 3 >= 0", (ROWS, COLUMNS))], ["x.size(0) + 2*y.size(0) - 3 >= 0"]),
    "what the limits say already": ([("s0 >= 1", (ROWS,)), ("2*s0 != 0", (ROWS,)), ("s0 != 0", (ROWS,))], ["1 <= x.size(0)"]),
    "what is no comparison of whole numbers": ([("not (s0 / 2 > 1.5)", (ROWS,))], ["not (x.size(0) / 2 > 1.5)"]),
    "several at once": ([("2 < s0 < s1", (ROWS, COLUMNS))], ["2 < x.size(0) < y.size(0)"]),
}


@pytest.mark.parametrize("case", SHOWN)
def test_relations_are_shown_by_the_names_of_the_program(case):
    relations, lines = SHOWN[case]
    assert constraints([SizeRelation(expression, sources) for expression, sources in relations]) == lines


def test_who_relies_on_it_is_said():
    assert constraints([SizeRelation("s0 == 2*s1", (ROWS, COLUMNS), "aten::view at model.py:5")]) == [
        "Eq(x.size(0), 2*y.size(0))   (aten::view at model.py:5)"
    ]


@pytest.mark.parametrize(
    ("plan", "shown"), [("64*((s0)//(4))", "64*floor(s0/4)"), ("s0*s0*4 + 3", "4*s0**2 + 3"), ("max(s0, 3)", "max(s0, 3)")]
)
def test_sizes_of_plans(plan, shown):
    assert size_text(plan) == shown


def test_a_capture_says_what_it_assumes_of_sizes():
    def halves(x, y):
        torch._check(x.shape[0] % 2 == 0)
        return torch.cat([x.reshape(2, -1).sum(0), y])

    x, y = torch.ones(16), torch.ones(3)
    opmill.mark_dynamic(x, 0, min=4, max=64)
    opmill.mark_dynamic(y, 0)
    compiled = opmill.compile(halves, backend="eager")
    compiled(x, y)
    [lines] = explanation_of(compiled).guards
    assert "4 <= x.size(0) <= 64" in lines
    assert any(line.startswith("Eq(Mod(x.size(0), 2), 0)") for line in lines)
    assert not any("SizeRelation" in line for line in lines)
