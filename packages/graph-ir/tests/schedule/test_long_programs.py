"""Work grows as programs do: counted in calls of Python functions, which no load on the machine changes."""

import sys

import pytest
import torch
from random_lowered import run_schedule

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.inline import inline
from opmill_graph_ir.schedule.loop import program_of
from opmill_graph_ir.schedule.memory import plan_memory
from opmill_graph_ir.schedule.steps import schedule


def calls_of(function):
    count = 0

    def profile(frame, event, arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        result = function()
    finally:
        sys.setprofile(None)
    return count, result


def turns(n):
    def f(x):
        for k in range(n):
            x = x * 1.5 + k
        return (x,)

    return f, [torch.randn(4, 8)]


def arguments(n):
    names = [f"a{k}" for k in range(n)]
    space: dict = {}
    exec(f"def f({', '.join(names)}):\n    return (" + " + ".join(names) + ",)\n", space)
    return space["f"], [torch.randn(4, 8) for _ in range(n)]


def results(n):
    def f(x):
        return tuple(x * k for k in range(n))

    return f, [torch.randn(4, 8)]


@pytest.mark.parametrize("family", [turns, arguments, results])
def test_capturing_lowering_and_scheduling_grow_as_the_program(family):
    def steps(n):
        f, inputs = family(n)
        graph = torch.fx.symbolic_trace(f)
        counted = {}
        counted["capture"], captured = calls_of(lambda: functionalize(graph, inputs))
        counted["lower"], lowered = calls_of(lambda: lower(captured))
        counted["schedule"], _ = calls_of(lambda: schedule(lowered))
        return counted

    steps(20)  # what is done once is done
    one, two = steps(200), steps(400)
    assert {name: two[name] / one[name] for name in one if two[name] > 2.3 * one[name]} == {}


def test_a_chain_is_not_built_again_at_each_link():
    """A consumer takes over what its one producer computes as it is, and only its own expression is written anew."""

    def calls(links):
        f, inputs = turns(links)
        program = program_of(lower(functionalize(torch.fx.symbolic_trace(f), inputs)))
        count, _ = calls_of(lambda: inline(program))
        return count

    calls(5)
    short, long = calls(10) / 10, calls(38) / 38  # as deep as an expression becomes
    assert long < 2.5 * short


CONTINUED = {
    "in order": lambda x, y: ((x * 2).exp() + y,),
    "transposed": lambda x, y: ((x * 2).t().exp().sin(),),
    "transposed and not": lambda x, y: ((z := x[:, :4] * 2) + z.t(),),
    "a part of it": lambda x, y: ((x * 2)[1:, :3].exp(),),
    "summed": lambda x, y: ((x * 2 + y).sum(0), (x * y).sum()),
    "one row": lambda x, y: ((x * 2)[:1] + y,),
    "flattened": lambda x, y: ((x * 2).reshape(-1) + 1,),
    "padded": lambda x, y: (torch.nn.functional.pad(x * 2, (1, 1)) + 1,),
    "twice": lambda x, y: ((z := x * y + 1) * z.sin(),),
}


@pytest.mark.parametrize("name", CONTINUED)
def test_what_a_consumer_takes_over_is_computed_at_its_own_points(name):
    inputs = [torch.randn(4, 8), torch.randn(4, 8)]
    graph = torch.fx.symbolic_trace(CONTINUED[name])
    lowered = lower(functionalize(graph, inputs))
    made = schedule(lowered)
    for got, wanted in zip(run_schedule(made, plan_memory(made), dict(zip(lowered.inputs, inputs))), graph(*inputs), strict=True):
        torch.testing.assert_close(got, wanted)
