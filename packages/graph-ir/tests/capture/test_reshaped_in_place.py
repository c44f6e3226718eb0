"""Tensors whose shape is changed in place beside other views: their gradients are left to torch."""

import pytest
import torch

from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.errors import GraphError


def view_and_turned(a):
    t = a * 1
    row = t.narrow(0, 3, 1)
    t.t_()
    return row


def written_through(a):
    t = a * 1
    view = t.squeeze(0)
    view.unsqueeze_(0)
    view.select(0, 0).fill_(3)
    return t * 1


def seen_behind(a):
    t = a * 1
    t.unsqueeze_(1)
    one = t.as_strided([], [], 9)
    row = one.as_strided([2], [1], 7)
    one.fill_(3)
    return row


@pytest.mark.parametrize("program", [view_and_turned, written_through, seen_behind])
def test_a_graph_with_gradients_refuses(program):
    with pytest.raises(GraphError, match="GI003"):
        capture_joint(torch.fx.symbolic_trace(program), [torch.randn(4, 4, requires_grad=True)])
