"""Schedules as text, read back."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered_programs import PROGRAMS, lowered_program
from pass_text import lines
from random_lowered import Maker

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.laws import verify_schedule
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import ExternStep, KernelStep, schedule
from opmill_graph_ir.schedule.whole_text import parse_schedule, show_schedule

TEXT = """
kernel 0:
    kernel exp(s0)
      in b0: float32[s0]
      inout b1: float32[s0]
    nest i0<s0
      phase
        add b1[i0] = exp(b0[i0])
size n = 8
input x: float32[n]
held y: float32[8] on cuda:0
temporary z: float32[8] strides [2] free   # a.py:1
bytes c 00ff
demand 'n > 3', 'too few'
takes n, x, y
launch 0 exp(x, y; n) on cuda:0 of exp, add   # a.py:1; b.py:2
launch 0 exp(x, z; 8)
call nothing = aten::_assert_async.msg (y, 'not   # one; more'); source='v1'
call z, _ = aten::sort (y.view([4], [2], 1)); out='aten::sort.values'   # sort
return z, size(n), tensor(y.view([4], [2], 1), detached=True), None
"""


def test_everything_that_a_schedule_may_hold_is_read_back():
    made = parse_schedule(TEXT)
    assert show_schedule(made).strip() == lines(TEXT)
    first, second, *calls = made.steps
    assert isinstance(first, KernelStep) and first.kernel is second.kernel
    assert (first.sizes, second.sizes, first.device, first.sources) == (("n",), (8,), "cuda:0", ("exp", "add"))
    assert all(isinstance(call, ExternStep) for call in calls) and calls[1].node.results == ("z", None)
    assert set(made.lowered.buffers) == {"x", "y"} and made.buffers["z"].strides[0].constant == 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_schedules_are_read_back(name):
    made = schedule(lowered_program(name))
    again = parse_schedule(show_schedule(made))
    verify_schedule(again)
    assert again == made


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 14), st.booleans(), st.booleans())
def test_random_schedules_are_read_back(seed, count, fusion, sorts):
    made = schedule(Maker(random.Random(seed), sorts=sorts).lowered(count), fusion=fusion)
    again = parse_schedule(show_schedule(made))
    assert again == made
    assert plan_memory(again) == plan_memory(made)


def test_loops_are_no_steps():
    with pytest.raises(GraphError, match="GI042: line 3 of a schedule cannot be read"):
        parse_schedule("input x: float32[8]\ntakes x\nloop a<8\n  set x[a] = x[a]\nreturn x")


def test_a_kernel_that_is_not_there_is_told():
    with pytest.raises(GraphError, match="GI042: line 2 of a schedule cannot be read: launch 1"):
        parse_schedule("input x: float32[8]\nlaunch 1 exp(x)\nreturn x")


def test_graphs_of_control_operators_stand_inside():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    root = torch.nn.Module()
    root.yes, root.no = (torch.fx.symbolic_trace(f) for f in (lambda a: (a.sin(),), lambda a: (a + 1,)))
    condition = graph.call_function(torch.gt, (graph.call_function(torch.sum, (x,)), 0))
    found = graph.call_function(torch.ops.higher_order.cond, (condition, graph.get_attr("yes"), graph.get_attr("no"), (x,)))
    graph.output(found)
    with torch.no_grad():
        made = schedule(lower(functionalize(torch.fx.GraphModule(root, graph), [torch.randn(3)])))
    text = show_schedule(made)
    assert text.count("body ") == 2 and show_schedule(parse_schedule(text)) == text
