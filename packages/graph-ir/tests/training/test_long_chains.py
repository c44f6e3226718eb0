"""Residual streams: what the backward computes again, it computes in short chains."""

from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower

LAYERS = 12


class Stream(torch.nn.Module):
    def forward(self, x, w):
        for _ in range(LAYERS):
            x = x + torch.nn.functional.layer_norm(x, (8,)).bfloat16() @ w
        return x.sin().sum()


def halves_of(device):
    x, w = torch.randn(4, 8, requires_grad=True), (0.3 * torch.randn(8, 8)).bfloat16().requires_grad_()
    joint = capture_joint(torch.fx.symbolic_trace(Stream()), [x, w])
    joint.graph.metas = {name: replace(meta, device=device) for name, meta in joint.graph.metas.items()}
    return joint, partition(joint), (x, w)


def chain(graph):
    """How many sums of the stream are computed again one from the other."""
    depth: dict[str, int] = {}
    for node in graph.nodes:
        read = [depth.get(a.name, 0) for a in node.args if hasattr(a, "name")]
        is_sum = node.func is torch.ops.aten.add.Tensor and "backward" not in node.origin
        depth[node.results[0] or ""] = max(read, default=0) + is_sum
    return max(depth.values())


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_chains_are_short_on_a_gpu(device: str) -> None:
    _, halves, _ = halves_of(device)
    length = chain(halves.backward)
    assert length <= 3 if device == "cuda:0" else length >= LAYERS - 1
    kept = [halves.forward.metas[name] for name in halves.saved]
    assert sum(meta.dtype == "float32" and meta.sizes == (4, 8) for meta in kept) <= 1 + LAYERS // 4 + 1


def test_gradients_are_eagers() -> None:
    joint, halves, inputs = halves_of("cuda:0")
    for graph in halves.graphs:
        graph.metas = {name: replace(meta, device="cpu") for name, meta in graph.metas.items()}
    found = run_lowered(lower(halves.forward), [x.detach() for x in inputs])
    wanted = Stream()(*inputs)
    torch.testing.assert_close(found[0], wanted.detach(), rtol=1e-2, atol=1e-2)
    known = dict(zip(joint.graph.inputs, inputs, strict=False))
    known |= {o.value: t for o, t in zip(halves.forward.outputs, found, strict=True)}
    known[joint.graph.inputs[joint.inputs]] = torch.ones(())
    gradients = run_lowered(lower(halves.backward), [known[name].detach() for name in halves.backward.inputs])
    for a, b in zip(gradients, torch.autograd.grad(wanted, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=5e-2, atol=5e-2)
