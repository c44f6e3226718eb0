"""Grids of affine maps are loops: each point is computed where an image is read."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower

SIZES = [(2, 3, 4, 5), (1, 1, 1, 7), (2, 1, 6, 1), (3, 2, 1, 1), (2, 1, 3, 4, 5), (1, 1, 1, 2, 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values(size, align, dtype):
    dims = len(size) - 2
    theta = torch.randn(size[0], dims, dims + 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    graph = functionalize(torch.fx.symbolic_trace(lambda theta: F.affine_grid(theta, size, align_corners=align)), [theta])
    program = lower(graph)
    assert not [n for n in program.nodes if type(n) is Extern]
    want = F.affine_grid(theta.double(), size, align_corners=align)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(run_lowered(program, [theta])[0].double(), want, rtol=2 * eps, atol=4 * torch.finfo(torch.float32).eps)


def test_a_grid_is_found_place_by_place():
    theta = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]])
    for align, count in itertools.product([False, True], [2, 3, 8]):
        graph = functionalize(
            torch.fx.symbolic_trace(lambda theta: F.affine_grid(theta, (1, 1, count, count), align_corners=align)), [theta]
        )
        [grid] = run_lowered(lower(graph), [theta])
        assert torch.equal(grid[0, 0, 0], grid[0, -1, -1].neg())
        assert grid.max() == (1 if align else (count - 1) / count)
