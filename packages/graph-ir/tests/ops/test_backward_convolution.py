"""Gradients of convolutions of each channel for itself: sums over windows, given as eager lays them out."""

import pytest
import torch

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower

CASES = {  # options of the convolution, input, the gradients that are torch's
    "3x3": ({"kernel_size": 3, "padding": 1}, torch.randn(2, 6, 9, 7), "none"),
    "with a step": ({"kernel_size": (3, 5), "stride": 2, "padding": (1, 2), "bias": False}, torch.randn(2, 6, 9, 8), "images"),
    "with a step, channels last": (
        {"kernel_size": 3, "stride": 2, "padding": 1},
        torch.randn(2, 6, 9, 8).contiguous(memory_format=torch.channels_last),
        "images",
    ),
    "spread": ({"kernel_size": 3, "dilation": 2}, torch.randn(1, 6, 9, 9), "none"),
    "further than the window": ({"kernel_size": 3, "padding": 4}, torch.randn(2, 6, 9, 9), "all"),
    "with what no window covers": ({"kernel_size": 3, "stride": 3}, torch.randn(2, 6, 11, 12), "images"),
    "steps and spread": ({"kernel_size": 3, "stride": 2, "dilation": 2, "padding": 1}, torch.randn(2, 6, 13, 12), "images"),
    "channels last already": ({"kernel_size": 3}, torch.randn(2, 6, 8, 8).contiguous(memory_format=torch.channels_last), "none"),
    "large, channels last already": (
        {"kernel_size": 3, "padding": 1},
        torch.randn(2, 6, 60, 50).contiguous(memory_format=torch.channels_last),
        "all",
    ),
    "large, channels last already, a large window": (
        {"kernel_size": 5, "padding": 2},
        torch.randn(2, 6, 60, 50).contiguous(memory_format=torch.channels_last),
        "none",
    ),
    "points": ({"kernel_size": 1, "groups": 1}, torch.randn(3, 6, 5, 7), "none"),
    "points of one image": ({"kernel_size": 1, "groups": 1, "bias": False}, torch.randn(1, 6, 5, 7), "none"),
    "points, channels last": (
        {"kernel_size": 1, "groups": 1},
        torch.randn(2, 6, 5, 7).contiguous(memory_format=torch.channels_last),
        "none",
    ),
    "points with a step": ({"kernel_size": 1, "groups": 1, "stride": 2}, torch.randn(2, 6, 5, 7), "all"),
    "points around": ({"kernel_size": 1, "groups": 1, "padding": 1}, torch.randn(2, 6, 5, 7), "all"),
    "points of a part": ({"kernel_size": 1, "groups": 1}, torch.randn(2, 8, 5, 9)[:, 1:7, :, 2:], "none"),
    "groups of two": ({"kernel_size": 3, "groups": 3}, torch.randn(2, 6, 8, 8), "all"),
    "double": ({"kernel_size": 3, "dtype": torch.float64}, torch.randn(2, 6, 8, 8, dtype=torch.float64), "all"),
}


@pytest.mark.filterwarnings("ignore:GI030")
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    options, x, torchs = CASES[name]
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Conv2d(6, 6, **{"groups": 6, **options}), torch.nn.Tanh())
    found = []
    compiled = compile_graph(
        torch.fx.symbolic_trace(module), [x.clone().requires_grad_()], options=GraphOptions(cache=False, verify=True), generators=()
    )
    for call in (module, lambda x: compiled(x)[0]):
        module.zero_grad()
        given = x.clone(memory_format=torch.preserve_format).requires_grad_()
        call(given).square().sum().backward()
        found.append([given.grad, *(p.grad for p in module.parameters())])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
    backward = lower(partition(capture_joint(torch.fx.symbolic_trace(module), [x.clone().requires_grad_()])).backward)
    masks = [n.args[-1] for n in backward.nodes if isinstance(n, Extern) and n.op == "aten::convolution_backward"]
    wanted = [tuple(getattr(m, "value", m) for m in mask) for mask in masks]
    assert ("none" if not wanted else "images" if wanted == [(True, False, False)] else "all") == torchs
