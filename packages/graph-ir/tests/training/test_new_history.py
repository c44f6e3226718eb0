"""What the caller gave without gradients and gets back with them: left to eager."""

import pytest
import torch

from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.errors import GraphError


def _into_input(a, b):
    b.copy_(a)
    return (torch.erfc(b),)


class _IntoBuffer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(3))

    def forward(self, a):
        self.last.mul_(0.9).add_(a)
        return (a.tanh(),)


def test_an_input_that_begins_to_require_grad_is_refused():
    with pytest.raises(GraphError, match="GI001.*begins to require grad"):
        capture_joint(torch.fx.symbolic_trace(_into_input), [torch.randn(3, requires_grad=True), torch.zeros(3)])


def test_a_buffer_that_does_is_refused():
    with pytest.raises(GraphError, match="GI001.*begins to require grad"):
        capture_joint(torch.fx.symbolic_trace(_IntoBuffer()), [torch.randn(3, requires_grad=True)])


def test_values_without_history_are_written():
    def detached(a, b):
        b.copy_(a.detach())
        return (a.tanh(),)

    assert capture_joint(torch.fx.symbolic_trace(detached), [torch.randn(3, requires_grad=True), torch.zeros(3)]).graph.mutations
