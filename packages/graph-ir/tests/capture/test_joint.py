"""Forward and backward as one graph: which outputs have a tangent, and which inputs a gradient."""

import pytest
import torch
from joint_text import lines, shown

from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.errors import GraphError


def joint(function, *inputs):
    class Program(torch.nn.Module):
        def forward(self, x, w):
            return function(x, w)

    return capture_joint(torch.fx.symbolic_trace(Program()), list(inputs))


def matrices():
    return torch.randn(8, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)


def test_a_chain_and_its_backward():
    found = joint(lambda x, w: torch.sin(x @ w), *matrices())
    assert shown(found.graph) == lines("""
        input x0: float32[8, 4]
        input x1: float32[4, 4]
        input x2: float32[8, 4]
        v0: float32[8, 4] = aten::mm(x0, x1)   # matmul
        v1: float32[8, 4] = aten::sin(v0)   # sin
        v2: float32[8, 4] = aten::cos(v0)   # backward of sin
        v3: float32[8, 4] = aten::mul.Tensor(x2, v2)   # backward of sin
        v4: float32[4, 8] strides [1, 4] = aten::t(x0)   # backward of matmul
        v5: float32[4, 4] = aten::mm(v4, v3)   # backward of matmul
        v6: float32[4, 4] strides [1, 4] = aten::t(x1)   # backward of matmul
        v7: float32[8, 4] = aten::mm(v3, v6)   # backward of matmul
        return v1, v7, v5""")
    assert (found.inputs, found.outputs, found.differentiable, found.targets) == (2, 1, (0,), ("x0", "x1"))


def test_a_tensor_returned_twice_has_one_tangent():
    found = joint(lambda x, w: ((y := x.exp()), y, w.detach() * 2), *matrices())
    assert found.repeated == ((1, 0),) and found.differentiable == (0,) and len(found.graph.inputs) == 3
    assert found.targets == ("x0",)


def test_a_view_of_an_input_is_made_after_the_graph():
    found = joint(lambda x, w: (x.sin(), w.t()), *matrices())
    assert found.derived == (1,) and found.differentiable == (0,)
    assert "view=([4, 4], [1, 4], 0)" in shown(found.graph)


def test_outputs_that_share_no_input_have_a_backward_each():
    found = joint(lambda x, w: (x.sin(), w.cos()), *matrices())
    assert [(p.tangents, p.gradients) for p in found.parts] == [((0,), (0,)), ((1,), (1,))]


def test_what_is_not_differentiated_has_no_gradient():
    x, w = matrices()
    found = joint(lambda x, w: x @ w, x, w.detach())
    assert found.targets == ("x0",) and len(found.graph.outputs) == 2


def test_integers_and_what_is_detached_have_no_tangent():
    found = joint(lambda x, w: (x.sin(), x.detach() * 2, x.argmax()), *matrices())
    assert found.differentiable == (0,)


def test_two_outputs_of_one_memory_that_autograd_does_not_know_are_refused():
    with pytest.raises(GraphError, match="GI001"):
        joint(lambda x, w: ((y := x.exp()), y.detach().requires_grad_()), *matrices())
