"""Attention within a window, which a graph has written as a mask: the kernels of both halves, interpreted, against float64."""

import math

import pytest
import torch
from test_attention import _with_tensor_cores

from opmill_graph_ir.capture.causal import leave_to_kernels
from opmill_graph_ir.capture.text import parse_graph
from opmill_kernel_gen_triton.debug import compiled_for_gpu

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures(_with_tensor_cores.__name__)]

N, WINDOW = 576, 100
PROGRAM = """
input q: bfloat16[1, 2, {n}, {w}] on cuda:0
input k: bfloat16[1, 2, {n}, {w}] on cuda:0
input v: bfloat16[1, 2, {n}, {w}] on cuda:0
input g: bfloat16[1, 2, {n}, {w}] strides [{all}, {w}, {two}, 1] on cuda:0
i: int64[{n}] on cuda:0 = aten::arange({n}, device=device('cuda:0'), pin_memory=False)
c: int64[{n}, 1] on cuda:0 = aten::unsqueeze(i, 1)
d: int64[{n}, {n}] on cuda:0 = aten::sub.Tensor(c, i)
m1: bool[{n}, {n}] on cuda:0 = aten::ge.Scalar(d, 0)
m2: bool[{n}, {n}] on cuda:0 = aten::lt.Scalar(d, {window})
m: bool[{n}, {n}] on cuda:0 = aten::bitwise_and.Tensor(m1, m2)
hidden: bfloat16[] on cuda:0 = aten::scalar_tensor(-65504.0, dtype=torch.bfloat16, device=device('cuda:0'))
shown: bfloat16[] on cuda:0 = aten::scalar_tensor(0.0, dtype=torch.bfloat16, layout=torch.strided, device=device('cuda:0'))
b: bfloat16[{n}, {n}] on cuda:0 = aten::where.self(m, shown, hidden)
e: bfloat16[1, 2, {n}, {n}] strides [0, 0, {n}, 1] on cuda:0 = aten::expand(b, [1, 2, {n}, {n}])
y: bfloat16[1, 2, {n}, {w}] strides [{all}, {w}, {two}, 1] on cuda:0, s: float32[1, 2, {n}, 1] on cuda:0, _, _, _, _, x: int64[] on cuda:0, \
z: int64[] on cuda:0, _ = aten::_scaled_dot_product_cudnn_attention(q, k, v, e, True)
gq: bfloat16[1, 2, {n}, {w}] on cuda:0, gk: bfloat16[1, 2, {n}, {w}] on cuda:0, gv: bfloat16[1, 2, {n}, {w}] on cuda:0 = \
aten::_scaled_dot_product_cudnn_attention_backward(g, q, k, v, y, s, x, z, e, None, None, {n}, {n}, 0.0, False)
return y, gq, gk, gv
"""


@pytest.mark.parametrize("width", [16, 64])
def test_training_within_a_window(width: int) -> None:
    sizes = {"n": N, "w": width, "two": 2 * width, "all": 2 * N * width, "window": WINDOW}
    graph = parse_graph(PROGRAM.format(**sizes).strip())
    leave_to_kernels(graph)
    assert [n.func.name() for n in graph.nodes][::5] == ["opmill::attention", "opmill::attention_backward"]
    call, plan, _ = compiled_for_gpu(graph)
    assert all(kernel.kind != "call" for kernel in plan.kernels)
    torch.manual_seed(0)
    q, k, v, g = (torch.randn(1, 2, N, width).bfloat16() for _ in range(4))
    g = g.transpose(1, 2).contiguous().transpose(1, 2)
    with torch.no_grad():
        found = call(q, k, v, g)
    places = torch.arange(N)[:, None] - torch.arange(N)
    leaves = [t.double().requires_grad_() for t in (q, k, v)]
    scores = (leaves[0] @ leaves[1].transpose(-2, -1) / math.sqrt(width)).masked_fill((places < 0) | (places >= WINDOW), -math.inf)
    output = scores.softmax(-1) @ leaves[2]
    for got, want in zip(found, (output.detach(), *torch.autograd.grad(output, leaves, g.double())), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=3e-2, atol=3e-2)
    assert found[0].stride() == (2 * N * width, width, 2 * width, 1)
