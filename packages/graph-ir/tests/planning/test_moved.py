"""Lines of a stored plan, in terms of the program at hand."""

import pytest
import torch

from opmill_graph_ir.planning.moved import Lines, lines_of, moved
from opmill_runtime_cache.plan.model import Alloc, Call, Free, Plan, TensorSpec


def graph(*lines):
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    for line in lines:
        node = graph.call_function(torch.sin, (node,))
        node.meta["stack_trace"] = f'  File "old.py", line {line}, in f\n    x.sin()'
    graph.output(node)
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    module.meta["where"] = '  File "old.py", line 1, in f'
    return module


def plan(*origins, name="f at old.py:1"):
    spec = TensorSpec("float32", (4,), (1,), "cpu")
    steps = [Alloc(k, spec, None, origin) for k, origin in enumerate(origins)]
    return Plan(name, 9, (), (), (*steps, Call("aten::sin", (), {}, (1,), origins[-1]), Free((0,))))


def test_lines_of_nodes_each_once():
    assert lines_of(graph(3, 4, 3)) == Lines("old.py:1", ("old.py:3", "old.py:4"), (0, 1, 0))


@pytest.mark.parametrize(
    ("then", "now", "origin", "wanted"),
    [
        ((3, 4), ("new.py:7", "new.py:8"), "sin old.py:3; old.py:4", "sin new.py:7; new.py:8"),
        ((3, 33), ("new.py:7", "new.py:8"), "old.py:33 old.py:3", "new.py:8 new.py:7"),  # one begins like the other
        ((3,), ("new.py:7",), "old.py:31 old.py:9", "old.py:31 old.py:9"),
        ((3, 4), ("old.py:4", "old.py:3"), "old.py:3; old.py:4", "old.py:4; old.py:3"),  # each once, not one after the other
        ((3,), ("new.py:7",), "", ""),
    ],
)
def test_steps_tell_the_lines_of_now(then, now, origin, wanted):
    lines = Lines("old.py:1", tuple(f"old.py:{n}" for n in then), tuple(range(len(then))))
    there = Lines("new.py:5", tuple(now), tuple(range(len(now))))
    found = moved(plan(origin), lines, there)
    assert {step.origin for step in found.steps[:2]} == {wanted} and found.name == "f at new.py:5"
    assert found.steps[2] == Free((0,))


def test_of_nodes_that_are_on_several_lines_now_the_first_counts():
    now = Lines("", ("new.py:7", "new.py:8"), (0, 1))
    assert moved(plan("old.py:3"), Lines("", ("old.py:3",), (0, 0)), now).steps[0].origin == "new.py:7"


def test_without_lines_nothing_changes():
    one = plan("old.py:3")
    assert moved(one, Lines("", (), ()), Lines("", (), ())) is one
