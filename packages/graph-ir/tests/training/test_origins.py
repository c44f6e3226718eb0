"""Where gradients come from: the lines of what they are the gradients of."""

import operator

import pytest
import torch

from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.places import BACKWARD, gradient_of, is_gradient


def traced(lines):
    """A chain of these operators, each on the line of its number."""
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for number, function in enumerate(lines):
        value = graph.call_function(function, (value,))
        value.meta["stack_trace"] = f'  File "model.py", line {number + 1}, in forward'
    graph.output((value,))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize("lines", [[torch.sin, torch.tanh], [torch.exp, torch.sin, torch.exp, torch.abs, torch.sum]])
def test_each_gradient_has_the_line_of_its_operator(lines):
    joint = capture_joint(traced(lines), [torch.randn(4, requires_grad=True)])
    origins = [node.origin for node in joint.graph.nodes]
    wanted = [f"model.py:{number + 1}" for number in range(len(lines))]
    assert list(dict.fromkeys(o for o in origins if not is_gradient(o))) == wanted
    backward = list(dict.fromkeys(o for o in origins if is_gradient(o)))
    assert [o for o in backward if o != BACKWARD] == [gradient_of(line) for line in reversed(wanted)]


def test_what_somebody_says_of_a_node_counts():
    module = traced([torch.sin])
    next(node for node in module.graph.nodes if node.op == "call_function").meta["origin"] = "elsewhere:7"
    joint = capture_joint(module, [torch.randn(4, requires_grad=True)])
    assert {node.origin for node in joint.graph.nodes} >= {"elsewhere:7", "backward of elsewhere:7"}


def test_gradients_that_a_graph_takes_itself_have_the_lines_of_their_operators():
    module = traced([torch.sin, torch.tanh, torch.sum])
    graph, end = module.graph, next(node for node in module.graph.nodes if node.op == "output")
    with graph.inserting_before(end):
        [given], last = graph.find_nodes(op="placeholder"), end.args[0][0]
        taken = graph.call_function(torch.autograd.grad, ([last], [given]))
        taken.meta["stack_trace"] = '  File "train.py", line 9, in step'
        first = graph.call_function(operator.getitem, (taken, 0))
    end.args = ((last, first),)
    module.recompile()
    joint = capture_joint(module, [torch.randn(4, requires_grad=True)])
    origins = {node.origin for node in joint.graph.nodes}
    assert {"gradient of model.py:1", "gradient of model.py:2"} <= origins and not any(map(is_gradient, origins)), origins


def test_what_is_not_differentiated_does_not_stand_for_what_was_before_it():
    """Autograd makes no node for the operator behind the one that is differentiated."""
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    values = [graph.call_function(torch.sin, (x,)), graph.call_function(torch.cos, (y,))]
    for number, value in enumerate(values):
        value.meta["stack_trace"] = f'  File "model.py", line {number + 1}, in forward'
    graph.output(tuple(values))
    joint = capture_joint(torch.fx.GraphModule(torch.nn.Module(), graph), [torch.randn(4, requires_grad=True), torch.randn(4)])
    origins = {node.origin for node in joint.graph.nodes}
    assert gradient_of("model.py:1") in origins and gradient_of("model.py:2") not in origins
