"""Gradients of running products: torch's operator for them in the graph, as loops, with zeros anywhere."""

import pytest
import torch

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_graph_ir.capture.joint import capture_joint

aten = torch.ops.aten


def _input(zeros, dtype, sizes=(4, 5, 6)):
    x = torch.randn(sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    flat = x.view(-1)
    if zeros == "one":
        flat[17] = 0
    elif zeros == "many":
        flat[::3] = 0
    elif zeros == "all":
        flat.zero_()
    return x.to(dtype)


def _gradients(fn, x, tangent):
    x = x.detach().requires_grad_()
    out = fn(x)
    out = out[0] if isinstance(out, (list, tuple)) else out
    return out, torch.autograd.grad(out, x, tangent.to(out.dtype))[0]


@pytest.mark.parametrize("zeros", ["none", "one", "many", "all"])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_as_in_double(dtype, dim, zeros):
    fn = lambda x: (x * 2).cumprod(dim)
    x = _input(zeros, dtype)
    tangent = torch.randn(x.shape, generator=torch.Generator().manual_seed(4)).to(dtype)
    compiled = compile_graph(torch.fx.symbolic_trace(fn), [x.clone().requires_grad_()], options=GraphOptions(cache=False))
    (out, found), (_, exact), (wanted_out, eager) = (
        _gradients(compiled, x, tangent),
        _gradients(fn, x.double(), tangent.double()),
        _gradients(fn, x, tangent),
    )
    torch.testing.assert_close(out, wanted_out)
    assert (found.dtype, found.shape, found.stride()) == (eager.dtype, eager.shape, eager.stride())
    error, allowed = ((g.double() - exact).abs().max() for g in (found, eager))
    assert error <= 2 * allowed + 4 * torch.finfo(dtype).eps * exact.abs().max()


CASES = {
    "whole": (lambda x: x.cumprod(1), True),
    "of one number": (lambda x: x.sum().cumprod(0), False),
    "through a view": (lambda x: x.transpose(0, 1).cumprod(0), False),
    "of another type": (lambda x: x.cumprod(1, dtype=torch.float64), False),
    "twice": (lambda x: x.cumprod(1).exp().cumprod(0), True),
}


@pytest.mark.parametrize("name", CASES)
def test_one_operator(name):
    fn, one = CASES[name]
    joint = capture_joint(torch.fx.symbolic_trace(fn), [torch.randn(4, 5, requires_grad=True)])
    found = [node.func for node in joint.graph.nodes]
    assert (aten.cumprod_backward.default in found) == one
    assert not one or not {aten.gather.default, aten.scatter.value}.intersection(found)
    x = _input("one", torch.float64, (4, 5))
    compiled = compile_graph(torch.fx.symbolic_trace(fn), [x.clone().requires_grad_()], options=GraphOptions(cache=False))
    tangent = torch.ones_like(fn(x))
    for ours, eager in zip(_gradients(compiled, x, tangent), _gradients(fn, x, tangent), strict=True):
        torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (1, 3), (3, 1)], ids=str)
def test_few_elements(sizes):
    x, tangent = _input("none", torch.float32, sizes), torch.ones(sizes)
    fn = lambda x: x.cumprod(1)
    compiled = compile_graph(torch.fx.symbolic_trace(fn), [x.clone().requires_grad_()], options=GraphOptions(cache=False))
    for ours, eager in zip(_gradients(compiled, x, tangent), _gradients(fn, x, tangent), strict=True):
        torch.testing.assert_close(ours, eager)
