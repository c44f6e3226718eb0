"""Backward operators as loops against eager's own operators."""

import operator

import pytest
import torch

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower

aten = torch.ops.aten
EDGES = torch.tensor([-3.0, 3.0, 0.0, -1.0, 1.0, 6.0, float("inf"), float("nan")])


def lowered(func, args, kwargs=None, *, picked=None):
    """The program of one call, and what it gives. ``picked``: which results leave the graph (None: the only one)."""
    graph, nodes = torch.fx.Graph(), []
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    for a in args:
        nodes.append(graph.placeholder(f"a{len(nodes)}") if isinstance(a, torch.Tensor) else a)
    result = graph.call_function(func, tuple(nodes), kwargs or {})
    graph.output([result] if picked is None else [graph.call_function(operator.getitem, (result, k)) for k in picked])
    with torch.no_grad():
        program = lower(functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), tensors))
        return program, run_lowered(program, tensors)


def check(func, args, kwargs=None, *, loops=True, picked=None):
    """``picked``: how many of the results leave the graph (None: all)."""
    with torch.no_grad():
        want = func(*args, **(kwargs or {}))
    numbers = [k for k, w in enumerate(want) if w is not None][:picked] if isinstance(want, tuple) else None
    program, got = lowered(func, args, kwargs, picked=numbers)
    assert loops != any(isinstance(n, Extern) and n.op.partition(".")[0] == func._qualified_op_name for n in program.nodes)
    for g, w in zip(got, [want] if numbers is None else [want[k] for k in numbers], strict=True):
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


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_nll_loss(reduction, dtype):
    x, target = torch.randn(5, 7).to(dtype), torch.tensor([0, 6, -100, 3, 3])
    for weight in (None, torch.rand(7).to(dtype)):
        check(aten.nll_loss_forward, (x, target, weight, reduction, -100), picked=1 if reduction == 0 else 2)
        check(aten.nll_loss_forward, (x, target.fill_(-100), weight, reduction, -100), picked=1)
    check(aten.nll_loss_forward, (x[0], torch.tensor(3), None, reduction, -100), picked=1)
    if dtype is torch.float32:
        check(aten.nll_loss2d_forward, (torch.randn(2, 3, 4, 5), torch.randint(0, 3, (2, 4, 5)), None, reduction, 1), picked=1)


def test_a_target_that_is_no_class():
    for target in (7, -1):
        with pytest.raises(IndexError, match="out of bounds"):
            torch.nn.functional.nll_loss(torch.randn(2, 7), torch.tensor([0, target]))
        with pytest.raises(IndexError, match="out of bounds"):
            lowered(aten.nll_loss_forward, (torch.randn(2, 7), torch.tensor([0, target]), None, 1, -100), picked=[0])


def test_safe_softmax(dtype):
    x = torch.randn(3, 5).to(dtype)
    x[1] = -float("inf")
    x[2, 2:] = -float("inf")
    check(aten._safe_softmax, (x, -1))
    check(aten._safe_softmax, (x, 0))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(4, 3, 2, 2), (6, 3), (2, 3, 5)])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(training, shape, affine, dtype):
    if dtype is torch.bfloat16:
        pytest.skip("statistics in another type are eager's alone")
    x, g = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    w, b, mean, var = (torch.rand(3).to(dtype) + 0.1 for _ in range(4))
    if not affine:
        w = b = None
    check(aten._native_batch_norm_legit_functional, (x, w, b, mean, var, training, 0.2, 1e-3), picked=None if training else 1)
    _, center, rstd = aten.native_batch_norm(x, w, b, mean.clone(), var.clone(), training, 0.1, 1e-3)
    stats = (None, None, center, rstd) if training else (mean, var, center, rstd)
    check(aten.native_batch_norm_backward, (g, x, w, *stats, training, 1e-3, [True, affine, affine]))


@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(affine, dtype):
    x, g = torch.randn(2, 6, 3, 2).to(dtype), torch.randn(2, 6, 3, 2).to(dtype)
    w, b = (torch.randn(6).to(dtype), torch.randn(6).to(dtype)) if affine else (None, None)
    _, mean, rstd = aten.native_group_norm(x, w, b, 2, 6, 6, 3, 1e-5)
    check(aten.native_group_norm_backward, (g, x, mean, rstd, w, 2, 6, 6, 3, [True, affine, affine]))


def test_random_slopes_are_the_middle_one_in_evaluation(dtype):
    x, noise, grad = EDGES.to(dtype), torch.empty_like(EDGES, dtype=dtype), torch.randn(8).to(dtype)
    check(aten.rrelu_with_noise_functional, (x, noise, 0.1, 0.4, False, None), picked=1)
    check(aten.rrelu_with_noise_backward, (grad, x, noise, 0.1, 0.4, False, False))
    check(aten.rrelu_with_noise_backward, (grad, x, torch.rand(8).to(dtype), 0.1, 0.4, True, False))
    check(aten.rrelu_with_noise_backward, (grad, x, torch.rand(8).to(dtype), 0.2, 0.2, True, False), loops=False)
