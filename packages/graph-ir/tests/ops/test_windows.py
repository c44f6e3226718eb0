"""Pooling, folding and padding, forward and backward, at random geometries against eager."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.lowered import Extern, Reduce
from opmill_graph_ir.ops import pooling_positions
from opmill_graph_ir.ops.lower import lower

aten = torch.ops.aten
Run = Callable[..., list[Any]]
COMMON = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def always_as_loops(as_loops: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Also of sizes at which torch's operators take less time."""
    monkeypatch.setattr(pooling_positions, "_SMALL", 1 << 20)
    return as_loops


def image(data: Any, least: int = 1) -> torch.Tensor:
    sizes = (data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3)), *(data.draw(st.integers(least, 9)) for _ in range(2)))
    # few distinct values: ties must be broken as eager breaks them
    values = torch.tensor(data.draw(st.lists(st.integers(-3, 3), min_size=7, max_size=7)), dtype=torch.float32)
    x = values.repeat(1 + torch.Size(sizes).numel() // 7)[: torch.Size(sizes).numel()].reshape(sizes).clone()
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(0, x.numel() - 1), st.sampled_from([float("-inf"), float("inf"), float("nan")])), max_size=4)
    ):
        x.view(-1)[at] = value
    return x


def agree(run: Run, fn: Callable[..., Any], *tensors: torch.Tensor) -> Any:
    want = fn(*tensors)
    for g, w in zip(run(fn, *tensors), want if isinstance(want, tuple) else [want], strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5, equal_nan=True)
    return want


@COMMON
@given(st.data())
def test_max_pool(as_loops: Run, data: Any) -> None:
    kernel = [data.draw(st.integers(1, 3)) for _ in range(2)]
    padding = [data.draw(st.integers(0, k // 2)) for k in kernel]
    dilation, stride, ceil = data.draw(st.integers(1, 2)), [data.draw(st.integers(1, 4)) for _ in range(2)], data.draw(st.booleans())
    x = image(data, least=max((k - 1) * dilation + 1 - 2 * p for k, p in zip(kernel, padding, strict=True)))
    options = (kernel, stride, padding, dilation, ceil)
    out, ids = agree(as_loops, lambda x: F.max_pool2d(x, *options, return_indices=True), x)
    if int(ids.max()) >= x.shape[2] * x.shape[3]:  # of windows that hold no element: torch's backward would write outside of the gradient
        return
    grad = torch.arange(out.numel(), dtype=torch.float32).reshape(out.shape) + 1
    agree(as_loops, lambda g, x, i: aten.max_pool2d_with_indices_backward(g, x, *options, i), grad, x, ids)


def test_places_of_large_images_are_loops_where_torch_makes_no_vectors(as_loops: Run) -> None:
    """Also where equal elements, NaN and infinities meet, in half precision and float64."""
    x = torch.randn(2, 4, 48, 48).round()
    x[torch.rand_like(x) < 0.1], x[torch.rand_like(x) < 0.3] = float("nan"), float("-inf")
    x[0, 0] = float("-inf")
    for dtype, (kernel, stride, padding) in itertools.product(
        (torch.float32, torch.bfloat16, torch.float64), ((2, 2, 0), (3, 2, 1), (5, 1, 2))
    ):
        agree(as_loops, lambda x: F.max_pool2d(x, kernel, stride, padding, return_indices=True), x.to(dtype))  # noqa: B023 (called at once)
    for laid, calls in ((x, 0), (x.contiguous(memory_format=torch.channels_last), 1)):
        graph = functionalize(torch.fx.symbolic_trace(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)), [laid])
        assert len([n for n in lower(graph).nodes if isinstance(n, Extern)]) == calls


@COMMON
@given(st.data())
def test_avg_pool(always_as_loops: Run, data: Any) -> None:
    kernel = [data.draw(st.integers(1, 3)) for _ in range(2)]
    padding = [data.draw(st.integers(0, k // 2)) for k in kernel]
    stride, ceil, whole = [data.draw(st.integers(1, 4)) for _ in range(2)], data.draw(st.booleans()), data.draw(st.booleans())
    divisor = data.draw(st.sampled_from([None, 3]))
    x = image(data, least=max(k - 2 * p for k, p in zip(kernel, padding, strict=True))).nan_to_num(posinf=5, neginf=-5)
    options = (kernel, stride, padding, ceil, whole, divisor)
    out = agree(always_as_loops, lambda x: aten.avg_pool2d(x, *options), x)
    grad = torch.arange(out.numel(), dtype=torch.float32).reshape(out.shape) + 1
    agree(always_as_loops, lambda g, x: aten.avg_pool2d_backward(g, x, *options), grad, x)


@COMMON
@given(st.data())
def test_adaptive_pools(always_as_loops: Run, data: Any) -> None:
    x = image(data)
    sizes = [data.draw(st.integers(1, 11)) for _ in range(2)]
    out, ids = agree(always_as_loops, lambda x: aten.adaptive_max_pool2d(x, sizes), x)
    grad = torch.arange(out.numel(), dtype=torch.float32).reshape(out.shape) + 1
    agree(always_as_loops, lambda g, x, i: aten.adaptive_max_pool2d_backward(g, x, i), grad, x, ids)
    x = x.nan_to_num(posinf=5, neginf=-5)
    agree(always_as_loops, lambda x: aten._adaptive_avg_pool2d(x, sizes), x)
    agree(always_as_loops, lambda g, x: aten._adaptive_avg_pool2d_backward(g, x), grad, x)


@pytest.mark.parametrize(
    "pool",
    [lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), lambda x: aten.adaptive_max_pool2d(x, (2, 3))],
    ids=["max", "adaptive"],
)
def test_of_several_nan_the_last_is_the_largest(as_loops: Run, pool: Callable[..., Any]) -> None:
    x = torch.randn(2, 3, 6, 8, generator=torch.Generator().manual_seed(0))
    agree(as_loops, pool, torch.where(torch.arange(8) % 3 == 1, float("nan"), x))


@COMMON
@given(st.data())
def test_folding(as_loops: Run, data: Any) -> None:
    kernel, dilation, padding, stride = (
        [data.draw(st.integers(low, high)) for _ in range(2)] for low, high in ((1, 3), (1, 2), (0, 2), (1, 3))
    )
    x = image(data, least=5).nan_to_num(posinf=5, neginf=-5)
    options = (kernel, dilation, padding, stride)
    blocks = agree(as_loops, lambda x: aten.im2col(x, *options), x)
    agree(as_loops, lambda b: aten.col2im(b, x.shape[2:], *options), blocks)


@COMMON
@given(st.data(), st.sampled_from(["reflection", "replication"]))
def test_padding(as_loops: Run, data: Any, kind: str) -> None:
    x = image(data, least=3).nan_to_num(posinf=5, neginf=-5)
    pad = [data.draw(st.integers(-1, 2)) for _ in range(4)]
    out = agree(as_loops, lambda x: getattr(aten, f"{kind}_pad2d")(x, pad), x)
    grad = torch.arange(out.numel(), dtype=torch.float32).reshape(out.shape) + 1
    agree(as_loops, lambda g, x: getattr(aten, f"{kind}_pad2d_backward")(g, x, pad), grad, x)


@pytest.mark.parametrize(("kernel", "stride", "terms"), [(2, 2, 1), (2, 3, 1), (3, 2, 4), (4, 2, 4), (5, 1, 25)])
def test_folding_adds_up_the_windows_over_a_place(as_loops: Run, kernel: int, stride: int, terms: int) -> None:
    blocks = (13 - kernel) // stride + 1
    x = torch.randn(2, 3 * kernel * kernel, blocks * blocks)
    agree(as_loops, lambda x: F.fold(x, (13, 13), kernel, stride=stride), x)
    graph = functionalize(torch.fx.symbolic_trace(lambda x: F.fold(x, (13, 13), kernel, stride=stride)), [x])
    sums = [n for n in lower(graph).nodes if isinstance(n, Reduce)]
    assert [math.prod(a.extent.constant or 0 for a in n.inner) for n in sums] == ([terms] if terms > 1 else [])


@pytest.mark.parametrize("step", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_unfold_backward(as_loops: Run, step: int, size: int) -> None:
    x = torch.arange(24, dtype=torch.float32).reshape(2, 12)
    grad = x.unfold(1, size, step).clone()
    agree(as_loops, lambda g: aten.unfold_backward(g, [2, 12], 1, size, step), grad)
