"""Gradients of what masks select: as eager's, to the sign of a zero, and laid in the mask's order where the selection is known."""

import pytest
import torch

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.selections import lay_selected

CASES = {
    "each element": (lambda x, m: x[m], (6, 5), (6, 5)),
    "rows": (lambda x, m: x[m], (6, 5, 2), (6,)),
    "two dimensions": (lambda x, m: x[m] * 2, (4, 3, 2), (4, 3)),
    "a mask computed here": (lambda x, m: x[(x > 0) & m], (6, 5), (6, 5)),
    "twice": (lambda x, m: torch.cat([x[m], x[m] * 3]), (6, 5), (6, 5)),
    "negative zeros": (lambda x, m: -0.0 * x[m], (6,), (6,)),
    "columns stay torch's": (lambda x, m: x[:, m], (3, 6), (6,)),
}
LAID = set(CASES) - {"columns stay torch's"}


def module(fn):
    return torch.fx.symbolic_trace(fn)


DTYPES = [torch.float32, torch.bfloat16, torch.complex64]
KINDS = [(name, d) for name in CASES for d in DTYPES if not (d.is_complex and name == "a mask computed here")]  # which have no order


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("name", "dtype"), KINDS)
def test_gradients_are_eagers(name, dtype, share):
    fn, sizes, mask = CASES[name]
    torch.manual_seed(0)
    x, m = torch.randn(sizes, dtype=dtype).requires_grad_(), torch.rand(mask) < share
    compiled = compile_graph(module(fn), [x, m])
    found, wanted = compiled(x, m), fn(x, m)
    found = found[0] if isinstance(found, (list, tuple)) else found
    assert torch.equal(found, wanted)
    tangent = torch.randn_like(wanted)
    [ours], [theirs] = torch.autograd.grad(found, x, tangent), torch.autograd.grad(wanted, x, tangent)
    assert torch.equal(ours, theirs)
    if not dtype.is_complex:
        assert torch.equal(ours.signbit(), theirs.signbit())


@pytest.mark.parametrize("name", CASES)
def test_selections_of_the_same_mask_are_laid(name):
    fn, sizes, mask = CASES[name]
    joint = capture_joint(module(fn), [torch.randn(sizes, requires_grad=True), torch.rand(mask) < 0.5])
    lay_selected(joint.graph)
    laid = sum(node.func in (torch.ops.aten.masked_scatter.default, torch.ops.aten.index_select.default) for node in joint.graph.nodes)
    put = sum(node.func is torch.ops.aten.index_put.default for node in joint.graph.nodes)
    assert bool(laid) == (name in LAID)
    assert bool(put) == (name not in LAID)
