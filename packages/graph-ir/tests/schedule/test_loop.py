"""Lowered programs as statements: axes of extent one, empty ones, single elements and nothing, against the program as it was lowered."""

import pytest
import torch

from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.schedule.loop import Loop, program_of, reads_of, writes_of
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import schedule
from opmill_graph_ir.schedule.text import parse_lowered, show_program

REDUCE = """input x: float32[{n}, {m}]
temporary y: float32[{n}]
takes x
reduce a<{n} over b<{m}
  {op} r: float32 = x[a, b]
  set y[a] = r
return y"""
SCAN = """input x: float32[{n}, {m}]
temporary y: float32[{n}, {m}]
takes x
cumulate.1 a<{n} b<{m}
  scan.{op} r: float32 = x[a, b]
  set y[a, b] = r
return y"""


def run(text, x):
    from random_lowered import run_schedule

    lowered = parse_lowered(text)
    made = schedule(lowered)
    return run_lowered(lowered, [x]), run_schedule(made, plan_memory(made), {"x": x.clone()})


@pytest.mark.parametrize("shape", [(3, 4), (3, 1), (1, 4), (1, 1), (0, 4)], ids=str)
@pytest.mark.parametrize(
    ("form", "op"), [(REDUCE, "sum"), (REDUCE, "max"), (REDUCE, "prod"), (SCAN, "sum"), (SCAN, "prod"), (SCAN, "logaddexp")]
)
def test_extents_of_one_and_none_mean_the_same(form, op, shape):
    x = torch.randn(shape)
    want, got = run(form.format(n=shape[0], m=shape[1], op=op), x)
    for w, g in zip(want, got, strict=True):
        torch.testing.assert_close(g, w.as_subclass(torch.Tensor))


@pytest.mark.parametrize(("op", "value"), [("sum", 0.0), ("prod", 1.0), ("max", float("-inf")), ("min", float("inf"))])
def test_a_reduction_over_nothing_is_its_neutral_element(op, value):
    program = program_of(parse_lowered(REDUCE.format(n=2, m=0, op=op)))
    assert f"= float32({value!r})" in show_program(program) or f"= float32({str(value)!r})" in show_program(program)


def test_a_sum_of_minus_zero_alone_is_zero_and_a_product_is_not():
    for op, sign in (("sum", False), ("prod", True)):
        _, [got] = run(REDUCE.format(n=2, m=1, op=op), torch.full((2, 1), -0.0))
        assert torch.signbit(got).tolist() == [sign] * 2


def test_names_are_given_once_and_empty_loops_go():
    text = "input x: float32[4]\ntemporary y: float32[4]\ntemporary z: float32[0]\ntakes x\n"
    text += "pointwise a<4\n  let v = exp(x[a])\n  set y[a] = v\npointwise a<4\n  let v = y[a]\n  set y[a] = v\npointwise a<0\n  set z[a] = x[a]\nreturn y, z"
    first, second = program_of(parse_lowered(text)).statements
    assert isinstance(first, Loop) and {first.axes[0].name, first.lets[0].name}.isdisjoint({second.axes[0].name, second.lets[0].name})


def test_what_statements_read_and_write():
    text = "input x: float32[4]\ninput y: float32[4]\ntakes x, y\nscatter a<4 from y\n  add y[a] = x[a]\ncall nothing = aten::add_ (y, x); mutates=['y']\nreturn y"
    scatter, call = program_of(parse_lowered(text)).statements
    assert reads_of(scatter) == {"x", "y"} and writes_of(scatter) == {"y"}  # what is there is added to
    assert isinstance(call, Extern) and reads_of(call) == {"x", "y"} and writes_of(call) == {"y"}


def test_sizes_of_the_captured_call_are_guesses():
    program = program_of(parse_lowered("size s0 = 6\nsize u0 = None\ninput x: float32[s0, 2]\ntakes x\nreturn x"))
    assert program.numel("x") == 12 and program.guess(index("s0") + 1) == 7 and program.guess(index("u0")) == 8192
    assert not program.is_temporary("x") and program.fresh_name("v") != program.fresh_name("v")
