"""The norm that GPUs have as one operator, and its gradients: graphs written by hand, since capture takes it apart on processors."""

import pytest
import torch
import torch.nn.functional as F

from opmill_graph_ir.capture.graph import AtenGraph, Meta, Node, OutputTensor, Value
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower

aten = torch.ops.aten


def _run(func, args, results):
    """``results``: a tensor like each that the operator gives, or None."""
    graph, given, values = AtenGraph(), [], []
    for a in args:
        if isinstance(a, torch.Tensor):
            name = f"a{len(given)}"
            graph.inputs.append(name)
            graph.metas[name] = _meta(a)
            given.append(a)
            a = Value(name)
        values.append(a)
    names = [None if t is None else f"r{k}" for k, t in enumerate(results)]
    graph.metas.update({n: _meta(t) for n, t in zip(names, results, strict=True) if n is not None})
    graph.nodes.append(Node(func, tuple(values), {}, tuple(names), ""))
    graph.outputs = [OutputTensor(n) for n in names if n is not None]
    program = lower(graph)
    assert not any(isinstance(n, Extern) for n in program.nodes)
    return run_lowered(program, given)


def _meta(t):
    return Meta(str(t.dtype).removeprefix("torch."), tuple(t.shape), tuple(t.stride()), "cpu")


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("sizes, dims, eps", [((3, 5, 8), 1, 1e-5), ((4, 6), 2, None), ((7,), 1, 1e-2)])
def test_values_and_gradients(sizes, dims, eps, dtype, weighted):
    torch.manual_seed(0)
    x, g = torch.randn(sizes).to(dtype), torch.randn(sizes).to(dtype)
    shape = list(sizes[len(sizes) - dims :])
    weight = torch.randn(shape).to(dtype) if weighted else None
    exact = [None if t is None else t.double().requires_grad_() for t in (x, weight)]
    least = torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).eps if eps is None else eps
    want = F.rms_norm(exact[0], shape, exact[1], least)
    want.backward(g.double())
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    rstd = torch.rsqrt(x.to(wide).square().mean(tuple(range(-dims, 0)), keepdim=True) + least)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-10}[dtype]
    y, r = _run(aten._fused_rms_norm.default, (x, shape, weight, eps), (x, rstd))
    torch.testing.assert_close(r, rstd, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(y.double(), want.detach(), rtol=tolerance, atol=tolerance)
    grads = _run(aten._fused_rms_norm_backward.default, (g, x, shape, rstd, weight, [True, weighted]), (x, weight))
    for got, leaf in zip(grads, exact, strict=False):
        torch.testing.assert_close(got.double(), leaf.grad, rtol=tolerance, atol=tolerance)
