"""Operators of which torch's kernels for processors are the faster ones from some size on: they are called, and small ones are loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_runtime_cache.plan.model import Call, Literal

aten = torch.ops.aten
GRID = torch.rand(2, 20, 20, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "reflection_pad2d": lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"),
    "replication_pad2d": lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"),
    "replication_pad2d_backward": lambda x: aten.replication_pad2d_backward(F.pad(x, (1, 1, 1, 1)), x, [1, 1, 1, 1]),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True),
    "im2col": lambda x: F.unfold(x, 3, stride=2),
    "_euclidean_dist": lambda x: aten._euclidean_dist(x.flatten(0, 1).flatten(1), x.flatten(0, 1).flatten(1) + 1),
    "_pdist_forward": lambda x: aten._pdist_forward(x.flatten(0, 2)),
    "grid_sampler_2d": lambda x: F.grid_sample(x, GRID[:, : x.shape[-1]], align_corners=False),
}


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"grid_sampler_2d"}))
def test_small_ones_are_loops(as_loops: Callable[..., list[Any]], name: str) -> None:
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    want = CALLS[name](x)
    for got, expected in zip(as_loops(CALLS[name], x), want if isinstance(want, tuple) else [want], strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", CALLS)
def test_large_ones_are_called(as_loops: Callable[..., list[Any]], name: str) -> None:
    with pytest.raises(AssertionError, match=f"aten::{name}"):
        as_loops(CALLS[name], torch.randn(2, 8, 20, 20))


def test_windows_that_divide_an_image_are_a_plain_pool(as_loops: Callable[..., list[Any]]) -> None:
    x = torch.randn(2, 8, 21, 28, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(as_loops(lambda x: F.adaptive_max_pool2d(x, 7), x)[0], F.adaptive_max_pool2d(x, 7))


def _filled(*sizes: int) -> torch.Tensor:
    return torch.arange(math.prod(sizes), dtype=torch.float32).remainder(11).reshape(sizes)


POOLS: dict[str, tuple[Callable[[torch.Tensor], Any], tuple[int, ...], str]] = {
    "averages of windows side by side": (lambda x: aten.avg_pool2d_backward(_filled(2, 16, 32, 32), x, [2, 2], [2, 2], [0, 0], False, True, None), (2, 16, 64, 64), ""),
    "averages of windows at each place": (lambda x: aten.avg_pool2d_backward(_filled(2, 16, 64, 64), x, [3, 3], [1, 1], [1, 1], False, True, None), (2, 16, 64, 64), ""),
    "averages of windows that share elements in steps": (lambda x: aten.avg_pool2d_backward(_filled(2, 4, 10, 10), x, [3, 3], [2, 2], [1, 1], False, True, None), (2, 4, 20, 20), "avg_pool2d_backward"),
    "averages of equal parts": (lambda x: aten._adaptive_avg_pool2d_backward(_filled(2, 16, 8, 8), x), (2, 16, 64, 64), ""),
    "averages of unequal parts": (lambda x: aten._adaptive_avg_pool2d_backward(_filled(2, 4, 7, 7), x), (2, 4, 20, 20), "_adaptive_avg_pool2d_backward"),
    "averages in short rows": (lambda x: F.avg_pool3d(x, 2), (1, 4, 8, 8, 14), "avg_pool3d"),
    "averages in longer rows": (lambda x: F.avg_pool3d(x, 2), (1, 4, 8, 8, 16), ""),
    "averages of windows that share elements in short rows": (lambda x: F.avg_pool3d(x, 3, 2, 1), (1, 4, 8, 8, 25), "avg_pool3d"),
    "averages of windows that share elements in longer rows": (lambda x: F.avg_pool3d(x, 3, 2, 1), (1, 4, 8, 8, 28), ""),
    "averages at each place in short rows": (lambda x: F.avg_pool3d(x, 3, 1, 1), (1, 4, 8, 8, 7), ""),
    "maxima in short rows": (lambda x: F.max_pool3d(x, 2), (1, 4, 8, 8, 14), ""),
    "maxima of windows that share elements in short rows": (lambda x: F.max_pool3d(x, 3, 2, 1), (1, 4, 8, 8, 14), "max_pool3d_with_indices"),
}  # fmt: skip


@pytest.mark.parametrize("name", POOLS)
def test_pools_are_loops_where_these_are_quicker(as_loops: Callable[..., list[Any]], name: str) -> None:
    pool, sizes, called = POOLS[name]
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(2))
    if called:
        with pytest.raises(AssertionError, match=f"aten::{called}"):
            as_loops(pool, x)
    else:
        torch.testing.assert_close(as_loops(pool, x)[0], pool(x))


def test_a_gradient_of_places_that_leaves_the_graph_is_torchs(as_loops: Callable[..., list[Any]]) -> None:
    """It is zero but for one class; what is computed of it is one loop with it."""
    x, labels = torch.randn(2, 8, 16, 16), torch.randint(0, 8, (2, 16, 16), generator=torch.Generator().manual_seed(4))
    gradient = lambda x, t: aten.nll_loss2d_backward(torch.ones(()), x, t, None, 1, -100, torch.tensor(512.0))
    with pytest.raises(AssertionError, match="aten::nll_loss2d_backward"):
        as_loops(gradient, x, labels)
    torch.testing.assert_close(as_loops(lambda x, t: gradient(x, t) * x, x, labels)[0], gradient(x, labels) * x)
    laid = x.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(as_loops(gradient, laid, labels)[0], gradient(x, labels))


def test_gradients_of_large_tables_in_half_precision_are_called(as_loops: Callable[..., list[Any]]) -> None:
    ids, grad = torch.randint(0, 50, (2, 6), generator=torch.Generator().manual_seed(3)), torch.ones(2, 6, 8, dtype=torch.bfloat16)
    few = as_loops(lambda g, i: aten.embedding_dense_backward(g, i, 40, 3, False), grad, ids.clamp(max=39))[0]
    torch.testing.assert_close(few, aten.embedding_dense_backward(grad, ids.clamp(max=39), 40, 3, False))
    with pytest.raises(AssertionError, match="aten::embedding_dense_backward"):
        as_loops(lambda g, i: aten.embedding_dense_backward(g, i, 50, 3, False), grad, ids)


VALUES: dict[str, tuple[Callable[[torch.Tensor], Any], bool]] = {
    "svdvals": (lambda x: torch.linalg.svdvals(x), False),
    "of a norm": (lambda x: torch.linalg.matrix_norm(x, "nuc"), False),
    "eigvalsh": (lambda x: torch.linalg.eigvalsh(x), False),
    "singular vectors": (lambda x: tuple(torch.linalg.svd(x, full_matrices=False)[k] for k in range(3)), True),
    "one of them": (lambda x: torch.linalg.svd(x, full_matrices=False)[2].abs(), True),
    "eigenvectors": (lambda x: torch.linalg.eigh(x)[1].abs(), True),
}


@pytest.mark.filterwarnings("ignore:GI030")
@pytest.mark.parametrize("name", VALUES)
def test_vectors_that_nobody_reads_are_not_computed(name: str) -> None:
    """Functions of values alone ask for vectors where they are traced."""
    pytest.importorskip("opmill_kernel_gen_cpp")  # without a generator a graph is torch's operators as they are
    function, vectors = VALUES[name]
    x = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(4))
    x = x + x.mT
    flat = lambda x: list(out) if isinstance(out := function(x), tuple) else [out]
    with torch.no_grad():
        run = compile_graph(torch.fx.symbolic_trace(flat), [x], options=GraphOptions(cache=False))
        for got, want in zip(run(x), flat(x), strict=True):
            assert got.stride() == want.stride()
            torch.testing.assert_close(got.abs(), want.abs(), rtol=1e-4, atol=1e-5)
        calls = [step for step in run.plan.steps if isinstance(step, Call) and "_linalg_" in step.op]
        assert calls and any(call.args[2:] != (Literal(False),) for call in calls) == vectors
        whole = compile_graph(torch.fx.symbolic_trace(flat), [x], options=GraphOptions(cache=False, numerics="eager"))
        calls = [step for step in whole.plan.steps if isinstance(step, Call) and "_linalg_" in step.op]
        assert calls and all(call.args[2:] != (Literal(False),) for call in calls)
