"""Scans through lowering and scheduling, against eager: any dimension and type, and what is fused with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.loops.spec import verify_kernel
from opmill_graph_ir.loops.text import parse, show
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.steps import KernelStep, Schedule, schedule

NUMBERS = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)


def _values(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    if dtype.is_floating_point:
        return torch.randn(sizes, generator=generator).to(dtype)
    return torch.randint(0, 4, sizes, generator=generator).to(dtype)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
def test_as_eager(as_loops: Callable[..., list[Any]], name: str, dtype: torch.dtype, dim: int) -> None:
    if name == "logcumsumexp" and not dtype.is_floating_point:
        pytest.skip("floats alone")
    x = _values(dtype, 3, 5, 4).transpose(0, 2)
    want = getattr(torch, name)(x, dim)
    want = list(want) if isinstance(want, tuple) else [want]
    for g, w in zip(as_loops(lambda x: getattr(torch, name)(x, dim), x), want, strict=True):
        assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride())
        torch.testing.assert_close(g, w)


def test_other_types_and_no_dimensions(as_loops: Callable[..., list[Any]]) -> None:
    x = _values(torch.float32, 4, 1, 3)
    for fn in (
        lambda x: x.cumsum(0, dtype=torch.float64), lambda x: (x * 3).cumsum(2, dtype=torch.int64), lambda x: x.cumsum(1), lambda x: x[0, 0, 0].cumsum(0),
        lambda x: tuple(x[0, 0, 0].cummax(0)), lambda x: (x > 0).cumsum(-1), lambda x: x.bfloat16().cumprod(0, dtype=torch.float32),
    ):  # fmt: skip
        want = fn(x)
        for g, w in zip(as_loops(fn, x), want if isinstance(want, tuple) else [want], strict=True):
            torch.testing.assert_close(g, w)


@pytest.mark.filterwarnings("ignore:GI030")
@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_minus_zero(name: str, length: int) -> None:
    x = torch.tensor([[-0.0], [0.0]]).repeat(1, length)
    compiled = compile_graph(torch.fx.symbolic_trace(lambda x: (getattr(torch, name)(x, 1),)), [x], options=GraphOptions(cache=False))
    with torch.no_grad():
        assert torch.equal(compiled(x)[0].signbit(), getattr(torch, name)(x, 1).signbit())


def _scheduled(fn: Callable[..., Any], *tensors: torch.Tensor) -> Schedule:
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"a{k}") for k in range(len(tensors))]
    graph.output(graph.call_function(lambda *xs: [fn(*xs)], tuple(nodes)))
    with torch.no_grad():
        made = schedule(lower(functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), list(tensors))))
    for kernel in made.kernels():
        verify_kernel(kernel)
        assert parse(show(kernel)) == kernel
    return made


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x.exp().cumsum(1) * 2 + x).tanh(),
        lambda x: torch.softmax(x, 1).cumsum(1),
        lambda x: x.flip(1).cumsum(1).flip(1) * x,
        lambda x: (x * x.cumsum(1)).cumsum(1),
        lambda x: x.cumsum(1).sum(1),
        lambda x: (x > 0).cumsum(1) - 1,
    ],
)
def test_what_stands_around_a_scan_is_fused(fn: Callable[..., Any]) -> None:
    """One kernel of one nest, which writes the result alone."""
    steps = _scheduled(fn, _values(torch.float32, 6, 9)).steps
    assert [type(s) for s in steps] == [KernelStep]
    [kernel] = [s.kernel for s in steps if isinstance(s, KernelStep)]
    assert len(kernel.nests) == 1


def test_gradient_of_a_running_sum_runs_backward() -> None:
    made = _scheduled(lambda x: x.flip(1).cumsum(1).flip(1) * x, _values(torch.float32, 6, 9))
    [kernel] = made.kernels()
    [phase] = kernel.nests[0].phases
    assert [s.reverse for s in phase.scans] == [True] and len(phase.stores) == 1
