"""Plans as text."""

import pytest

from opmill_runtime_cache.errors import PlanFormatError
from opmill_runtime_cache.plan.model import (
    Alloc,
    Call,
    Free,
    ListArg,
    Literal,
    Named,
    Plan,
    Slot,
    SlotOutput,
    TensorInput,
    TensorSpec,
    View,
)
from opmill_runtime_cache.plan.text import parse, render

SPEC = TensorSpec("float32", ("s0", 4), (4, 1), "cpu")
PLAN = Plan(
    "a 'plan'",
    4,
    (TensorInput(0, SPEC, False, "x"),),
    (SlotOutput(2),),
    (
        Alloc(1, SPEC, None, "exp a.py:1"),
        View(2, 1, ("s0*4",), (1,), 0),
        Call("aten::sum.dim_IntList", (Slot(0), ListArg((Literal(1),)), Literal(True)), {"dtype": Named("dtype", "float64")}, (3,), "sum"),
        Free((3,)),
    ),
)


def test_a_plan_reads_back_and_shows_where_its_steps_come_from():
    text = render(PLAN)
    assert parse(text) == PLAN and render(parse(text)) == text
    assert any("exp a.py:1" in line and "alloc(" in line for line in text.splitlines())
    assert any("aten::sum.dim_IntList" in line for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plan('p', slots=1, arena=0)",
        "plan('p', slots=1, arena=0)\nt0 = what(3)\noutput()",
        "t0 = alloc(",
        "plan('p', slots=__import__('os'), arena=0)\noutput()",
        "plan('p', slots=1, arena=0)\nt0 = alloc('float32', [2], [1], 'cpu').data\noutput()",
    ],
)
def test_what_is_no_plan(text):
    with pytest.raises(PlanFormatError, match="RC004"):
        parse(text)
