"""Batch norms as torch chooses them on GPUs, where cuDNN has one of its own: captured and run here, that one is torch's."""

import pytest
import torch

from opmill_graph_ir.backend import compile_graph, installed_generators
from opmill_runtime_cache.plan.model import Call
from opmill_runtime_cache.store import Store


def _of_cudnn(x, weight, bias, mean, var):
    return torch.ops.aten.cudnn_batch_norm.default(x, weight, bias, mean, var, TRAINING, 0.1, 1e-5)[0].relu()


TRAINING = True


def _eager(x, weight, bias, mean, var, training):
    return torch.nn.functional.batch_norm(x, mean, var, weight, bias, training, 0.1, 1e-5).relu()


@pytest.mark.skipif(not installed_generators(), reason="no kernel generator is installed: tests of all packages together run it")
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_cudnn_s_batch_norm_is_torch_s(training: bool, gradients: bool, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(globals(), "TRAINING", training)

    def inputs() -> list[torch.Tensor]:
        g = torch.Generator().manual_seed(0)
        made = [torch.randn(4, 6, 5, 5, generator=g), *(torch.rand(6, generator=g) + 0.5 for _ in range(4))]
        return [t.requires_grad_(gradients and k < 3) for k, t in enumerate(made)]

    ours, theirs = inputs(), inputs()
    compiled = compile_graph(torch.fx.symbolic_trace(_of_cudnn), ours, store=Store(tmp_path))
    assert not compiled.report.operators_only and not any(type(step) is Call and "norm" in step.op for step in compiled.plan.steps)
    [got], want = compiled(*ours), _eager(*theirs, training)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(ours[3:], theirs[3:])  # the running statistics
    if gradients:
        for each in (got, want):
            each.square().sum().backward()
        torch.testing.assert_close([t.grad for t in ours[:3]], [t.grad for t in theirs[:3]], rtol=1e-4, atol=1e-5)
