"""Laws of programs between passes: each is broken once, and told."""

import re

import pytest

from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.schedule.laws import verify_lowered, verify_program, verify_schedule
from opmill_graph_ir.schedule.text import parse_lowered, parse_program
from opmill_graph_ir.schedule.whole_text import parse_schedule

HEAD = "input x: float32[8]\ntemporary y: float32[8]\ntemporary z: float32[8, 2]\n"
LEGAL = HEAD + "loop a<8\n  set y[a] = exp(x[a])\nreturn y"
PROGRAMS = {
    "y is read before it is written": "loop a<8\n  set x[a] = y[a]\nreturn x",
    "y leaves and is written nowhere": "return y",
    "w is used and is no buffer": "call w = aten::exp (x)\nreturn x",
    "a names two things": "loop a<8 a<2\n  set z[a, a] = x[a]\nreturn z",
    "v names two things": "loop a<8\n  let v = x[a]\n  let v = exp(x[a])\n  set y[a] = v\nreturn y",
    "z of 2 dimensions is read or written at 1 positions": "loop a<8\n  set z[a] = x[a]\nreturn z",
    "a scan along 2 axes": "loop over a<8 b<2\n  scan.sum r: float32 = x[a]\n  set z[a, b] = r\nreturn z",
}


@pytest.mark.parametrize("law", PROGRAMS)
def test_laws_of_programs(law):
    verify_program(parse_program(LEGAL))
    with pytest.raises(GraphError, match=f"GI041: a program of loops breaks a law: {re.escape(law)}"):
        verify_program(parse_program(HEAD + PROGRAMS[law]))


@pytest.mark.parametrize(
    ("law", "text"),
    [
        ("y is read before it is written", "pointwise a<8\n  set z[a] = y[a]\nreturn x"),
        ("y leaves and is written nowhere", "return y"),
        ("w is written and is no buffer", "call w = aten::exp (x)\nreturn x"),
    ],
)
def test_laws_of_lowered_programs(law, text):
    verify_lowered(parse_lowered(HEAD + "takes x\npointwise a<8\n  set y[a] = exp(x[a])\nreturn y"))
    with pytest.raises(GraphError, match=f"GI041: a lowered program breaks a law: {law}"):
        verify_lowered(parse_lowered(HEAD + "takes x\n" + text))


KERNEL = """kernel 0:
    kernel exp()
      in b0: float32[8]
      out b1: float32[8]
    nest i<8
      phase
        set b1[i] = exp(b0[i])
"""


@pytest.mark.parametrize(
    ("law", "step"),
    [("y is read before it is written", "launch 0 exp(y, z)"), ("y is read before it is written", "call z = aten::exp (y)")],
)
def test_laws_of_schedules(law, step):
    verify_schedule(parse_schedule(KERNEL + HEAD + "takes x\nlaunch 0 exp(x, y)\nreturn y"))
    with pytest.raises(GraphError, match=f"GI041: a schedule breaks a law: {law}"):
        verify_schedule(parse_schedule(KERNEL + HEAD + f"takes x\n{step}\nreturn z"))


def test_kernels_of_a_schedule_obey_theirs():
    wrong = KERNEL.replace("exp(b0[i])", "b2[i]").replace("      out b1", "      in b2: float64[8]\n      out b1")
    with pytest.raises(GraphError, match="GI040"):
        verify_schedule(parse_schedule(wrong + HEAD + "takes x\nlaunch 0 exp(x, x, y)\nreturn y"))
