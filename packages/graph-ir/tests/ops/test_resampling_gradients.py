"""Gradients of resized images, as loops, against eager's: modes, sizes, scales, alignment."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower

MODES = {"nearest": (1, 2, 3), "nearest-exact": (1, 2), "linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}
HOW: tuple[dict[str, Any], ...] = (
    {"size": 1}, {"size": 3}, {"size": 7}, {"size": 13}, {"scale_factor": 1.1}, {"scale_factor": 1.7}, {"scale_factor": 0.6}, {"scale_factor": 2.0},
    {"scale_factor": 1.7, "recompute_scale_factor": True},
)  # fmt: skip


def gradients(fn: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Ours, and eager's."""
    result = fn(x)
    tangent = torch.randn(result.shape, generator=torch.Generator().manual_seed(4)).to(result.dtype)
    [want] = torch.autograd.grad(result, x, tangent)
    graph = torch.fx.Graph()
    graph.output(graph.call_function(lambda a: [fn(a)], (graph.placeholder("a"),)))
    program = lower(capture_joint(torch.fx.GraphModule(torch.nn.Module(), graph), [x]).graph)
    assert not any(isinstance(n, Extern) for n in program.nodes)
    return run_lowered(program, [x.detach(), tangent])[-1], want


@pytest.mark.parametrize("size", [1, 2, 5, 9])
@pytest.mark.parametrize(("mode", "rank"), [(m, r) for m, ranks in MODES.items() for r in ranks])
def test_as_eager(mode: str, rank: int, size: int) -> None:
    x = torch.randn(1, 2, size, *(4, 3)[: rank - 1], generator=torch.Generator().manual_seed(size))
    for how in HOW:
        for align in (None,) if "nearest" in mode else (False, True):
            options = how if align is None else {**how, "align_corners": align}
            try:
                torch.nn.functional.interpolate(x, mode=mode, **options)
            except RuntimeError:
                continue  # nothing would be left
            got, want = gradients(lambda a, o=options: torch.nn.functional.interpolate(a, mode=mode, **o), x.clone().requires_grad_())
            torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-5)


def test_half_precision() -> None:
    x = torch.randn(1, 2, 4, 5, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    got, want = gradients(lambda a: torch.nn.functional.interpolate(a, scale_factor=2, mode="bilinear"), x)
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("scale", [1.1, 2.1, 0.95, 1.7])
@pytest.mark.parametrize(("mode", "rank"), [(m, r) for m, ranks in MODES.items() for r in ranks])
def test_scales_that_eager_does_not_look_at(mode: str, rank: int, scale: float) -> None:
    """Where a size stays or is doubled, some of eager's kernels forget the scale that was given, and linear ones read the point alone."""
    formats = [torch.contiguous_format, *([torch.channels_last] if rank == 2 else [torch.channels_last_3d] if rank == 3 else [])]
    for size, layout in itertools.product((1, 5, 10), formats):
        x = torch.randn(1, 2, size, *(4, 3)[: rank - 1], generator=torch.Generator().manual_seed(size)).contiguous(memory_format=layout)
        x[0, 0, size // 2] = float("nan")
        graph = torch.fx.Graph()
        fn = lambda a: torch.nn.functional.interpolate(a, scale_factor=scale, mode=mode)
        graph.output((graph.call_function(fn, (graph.placeholder("a"),)),))
        try:
            want = fn(x)
        except RuntimeError:
            continue  # nothing would be left
        got = run_lowered(lower(functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), [x])), [x])[0]
        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5, equal_nan=True)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align", [False, True])
def test_of_smoothed_images(mode: str, align: bool) -> None:
    for height, width in ((1, 1), (5, 4), (9, 17)):
        x = torch.randn(1, 2, height, width, generator=torch.Generator().manual_seed(width))
        for how in ({"size": (3, 5)}, {"size": (1, 1)}, {"size": (13, 2)}, {"scale_factor": 0.6}, {"scale_factor": (1.7, 0.4)}):
            try:
                torch.nn.functional.interpolate(x, mode=mode, antialias=True, align_corners=align, **how)
            except RuntimeError:
                continue  # nothing would be left
            fn = lambda a, h=how: torch.nn.functional.interpolate(a, mode=mode, antialias=True, align_corners=align, **h)
            got, want = gradients(fn, x.clone().requires_grad_())
            torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "how", [{"size": (5, 6)}, {"size": (5, 2)}, {"size": (2, 6)}, {"scale_factor": (1.15, 1.0)}, {"scale_factor": (1.15, 0.5)}]
)
def test_smoothing_leaves_a_dimension_alone_whose_size_stays(mode: str, how: dict[str, Any]) -> None:
    """Where filters end, a point beside them would count with weight zero, and NaN times zero is NaN."""
    x = torch.randn(1, 1, 5, 6, generator=torch.Generator().manual_seed(0))
    fn = lambda a: torch.nn.functional.interpolate(a, mode=mode, antialias=True, **how)
    graph = torch.fx.Graph()
    graph.output((graph.call_function(fn, (graph.placeholder("a"),)),))
    lowered = lower(functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), [x]))
    for place in itertools.product(range(5), range(6)):
        given = x.clone()
        given[0, 0, place[0], place[1]] = float("nan")
        torch.testing.assert_close(run_lowered(lowered, [given])[0], fn(given), rtol=2e-5, atol=2e-5, equal_nan=True)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_nan_stays_with_the_points_that_were_read(mode: str, bad: float) -> None:
    """A gradient that is none times a weight of zero is none, so what was not read must not be multiplied at all."""
    x, gradient = torch.randn(1, 2, 4, 5, generator=torch.Generator().manual_seed(0)), torch.ones(1, 2, 7, 6)
    gradient[0, 0, 2, 3] = bad

    class Resized(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.interpolate(x, size=(7, 6), mode=mode)

    run = compile_graph(
        torch.fx.symbolic_trace(Resized()), [x.clone().requires_grad_()], options=GraphOptions(cache=False, verify=True), generators=()
    )
    found = []
    for call in (Resized(), lambda t: run(t)[0]):
        given = x.clone().requires_grad_()
        call(given).backward(gradient)
        found.append(given.grad)
    assert found[0].isfinite().any() and not found[0].isfinite().all()
    torch.testing.assert_close(found[1], found[0], equal_nan=True)
