"""Backward operators as loops against eager's own operators."""

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower

aten = torch.ops.aten
EDGES = torch.tensor([-3.0, 3.0, 0.0, -1.0, 1.0, 6.0, float("inf"), float("nan")])


def check(func, args, kwargs=None, *, loops=True, rtol=None):
    graph, nodes = torch.fx.Graph(), []
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    for a in args:
        nodes.append(graph.placeholder(f"a{len(nodes)}") if isinstance(a, torch.Tensor) else a)
    result = graph.call_function(func, tuple(nodes), kwargs or {})
    with torch.no_grad():
        want = func(*args, **(kwargs or {}))
        many = isinstance(want, tuple)
        picked = [k for k, w in enumerate(want) if w is not None] if many else []
        import operator

        graph.output([graph.call_function(operator.getitem, (result, k)) for k in picked] if many else [result])
        program = lower(functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), tensors))
        got = run_lowered(program, tensors)
    assert loops != any(isinstance(n, Extern) and "backward" in n.op for n in program.nodes)
    for g, w in zip(got, [want[k] for k in picked] if many else [want], strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        tolerance = {"rtol": 1.6e-2, "atol": 1e-2} if w.dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(g, w, equal_nan=True, **tolerance)


@pytest.fixture(params=[torch.float32, torch.bfloat16, torch.float64], ids=str)
def dtype(request):
    torch.manual_seed(0)
    return request.param


UNARY = {
    "gelu_backward": [((), {}), ((), {"approximate": "tanh"})],
    "silu_backward": [((), {})],
    "hardswish_backward": [((), {})],
    "hardsigmoid_backward": [((), {})],
    "sigmoid_backward": [((), {})],
    "tanh_backward": [((), {})],
    "threshold_backward": [((0,), {}), ((0.5,), {})],
    "hardtanh_backward": [((-1.0, 1.0), {})],
    "leaky_relu_backward": [((0.01, False), {}), ((0.2, True), {})],
}


@pytest.mark.parametrize("name", UNARY)
def test_activations(name, dtype):
    # of NaN, and of infinities in the smooth ones, eager gives this or that by position in memory
    finite = name in ("gelu_backward", "silu_backward", "hardswish_backward", "hardtanh_backward")
    x = torch.cat([torch.randn(24) * 2, EDGES[:6] if finite else EDGES]).to(dtype)
    g = torch.randn(len(x)).to(dtype)
    for rest, kwargs in UNARY[name]:
        check(getattr(aten, name), (g, x, *rest), kwargs)


@pytest.mark.parametrize("of_result", [False, True])
def test_elu(of_result, dtype):
    x = torch.randn(5, 7).to(dtype)
    check(aten.elu_backward, (torch.randn(5, 7).to(dtype), 0.7, 1.5, 2.0, of_result, x))


def test_dropout(dtype):
    check(aten.native_dropout_backward, (torch.randn(5, 7).to(dtype), torch.rand(5, 7) > 0.5, 2.0))


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses(reduction, dtype):
    x = torch.randn(5, 7).to(dtype)
    g = torch.randn(5, 7).to(dtype) if reduction == 0 else torch.tensor(1.5, dtype=dtype)
    check(aten.mse_loss_backward, (g, x, torch.randn(5, 7).to(dtype), reduction))
    target, g = torch.tensor([0, 6, -100, 3, 3]), torch.randn(5).to(dtype) if reduction == 0 else g
    for weight in (None, torch.rand(7).to(dtype)):
        total = aten.nll_loss_forward(x, target, weight, reduction, -100)[1]
        check(aten.nll_loss_backward, (g, x, target, weight, reduction, -100, total))
    if dtype is torch.float32:
        x, target = torch.randn(2, 3, 4, 5), torch.randint(0, 3, (2, 4, 5))
        total = aten.nll_loss2d_forward(x, target, None, reduction, -100)[1]
        check(aten.nll_loss2d_backward, (torch.randn(2, 4, 5) if reduction == 0 else g, x, target, None, reduction, -100, total))


def test_slices(dtype):
    check(aten.slice_backward, (torch.randn(5, 3).to(dtype), [5, 9], 1, 1, 7, 2))
    check(aten.slice_backward, (torch.randn(2, 9).to(dtype), [5, 9], 0, -2, 9223372036854775807, 1))
    check(aten.select_backward, (torch.randn(5).to(dtype), [5, 9], 1, -2))
    check(aten.select_backward, (torch.randn(9).to(dtype), [1, 9], 0, 0))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim, dtype):
    x, g = torch.randn(3, 4, 5).to(dtype), torch.randn(3, 4, 5).to(dtype)
    check(aten._softmax_backward_data, (g, torch.softmax(x, dim), dim, dtype))
    check(aten._log_softmax_backward_data, (g, torch.log_softmax(x, dim), dim, dtype))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(5,), (4, 5)])
def test_layer_norm(affine, shape, dtype):
    x, g = torch.randn(3, 4, 5).to(dtype), torch.randn(3, 4, 5).to(dtype)
    w, b = (torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)) if affine else (None, None)
    _, mean, rstd = aten.native_layer_norm(x, shape, w, b, 1e-5)
    check(aten.native_layer_norm_backward, (g, x, list(shape), mean, rstd, w, b, [True, affine, affine]))
