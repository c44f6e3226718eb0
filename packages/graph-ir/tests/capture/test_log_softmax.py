"""A logarithm of softmax whose result is not kept for the backward: as eager's, and what is kept are two numbers a row."""

import math

import pytest
import torch

from opmill_graph_ir.capture import log_softmax
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.log_softmax import in_steps
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower

F = torch.nn.functional


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(log_softmax, "_SMALLEST", 1)


def both(fn, *inputs):
    """What ``fn`` gives and the gradients of its first result, of eager and of the rewritten graph; and what is kept between its halves."""
    joint = capture_joint(torch.fx.symbolic_trace(fn), list(inputs))
    in_steps(joint.graph)
    halves = partition(joint)
    found = run_lowered(lower(halves.forward), [x.detach() for x in inputs])
    known = dict(zip(joint.graph.inputs, inputs, strict=False))
    known |= {o.value: t for o, t in zip(halves.forward.outputs, found, strict=True)}
    tangent = torch.randn(found[0].shape, dtype=found[0].dtype)
    known[joint.graph.inputs[joint.inputs]] = tangent
    gradients = run_lowered(lower(halves.backward), [known[name].detach() for name in halves.backward.inputs])
    wanted = fn(*inputs)
    theirs = torch.autograd.grad(wanted, inputs[0], tangent)
    return found[0], wanted.detach(), gradients, theirs, tangent, [joint.graph.metas[n] for n in halves.saved]


LOSSES = {
    "mean": lambda x, y: F.cross_entropy(x, y),
    "sum": lambda x, y: F.cross_entropy(x, y, reduction="sum"),
    "each": lambda x, y: F.cross_entropy(x, y, reduction="none"),
    "ignored": lambda x, y: F.cross_entropy(x, y, ignore_index=2),
    "wide": lambda x, y: F.cross_entropy(x.float(), y),
    "weights": lambda x, y: F.nll_loss(F.log_softmax(x, 1), y, weight=x.detach()[0].abs() + 0.5),
    "smooth": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    "probabilities": lambda x, y: F.log_softmax(x, -1).sin(),
    "other dimension": lambda x, y: F.log_softmax(x, 0).cos(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_are_eagers(name: str, dtype: torch.dtype) -> None:
    x, y = (4 * torch.randn(5, 7)).to(dtype).requires_grad_(), torch.tensor([0, 6, 2, 3, 2])

    class Loss(torch.nn.Module):
        def forward(self, x, y):
            return LOSSES[name](x, y)

    found, wanted, gradients, theirs, tangent, _ = both(Loss(), x, y)
    double = x.detach().double().requires_grad_()
    exact = Loss()(double, y)
    [slope] = torch.autograd.grad(exact, double, tangent.to(exact.dtype))
    for ours, eagers, judge in ((found, wanted, exact), (gradients[0], theirs[0], slope)):
        assert ours.dtype == eagers.dtype and ours.shape == eagers.shape
        assert (ours - judge).norm() <= 1.5 * (eagers - judge).norm() + 1e-6 * judge.norm()


@pytest.mark.parametrize("special", [math.inf, -math.inf, math.nan, 3e38])
def test_special_values_are_eagers(special: float) -> None:
    x = torch.randn(4, 7)
    x[1, 2], x[2] = special, special
    x.requires_grad_()
    found, wanted, gradients, theirs, *_ = both(torch.nn.LogSoftmax(1), x)
    torch.testing.assert_close(found, wanted, equal_nan=True)
    torch.testing.assert_close(gradients[0], theirs[0], equal_nan=True)


def test_no_matrix_is_kept_but_the_input() -> None:
    class Loss(torch.nn.Module):
        def forward(self, x, y):
            return F.cross_entropy(x.float(), y)

    *_, saved = both(Loss(), torch.randn(64, 100).bfloat16().requires_grad_(), torch.randint(0, 100, (64,)))
    large = [meta for meta in saved if math.prod(meta.sizes) > 64]
    assert [meta.dtype for meta in large] == ["bfloat16"]
