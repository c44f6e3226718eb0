"""Results on devices that are no processors: fakes of such a device need none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from opmill_fake_tensors import FakeContext

LAST = torch.channels_last
CALLS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "shuffle": (lambda x: F.pixel_shuffle(x, 2), (2, 8, 3, 5), (2, 2, 6, 10)),
    "unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (2, 3, 6, 4), (2, 12, 3, 2)),
}


def rows(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return torch.empty(sizes, device="meta").stride()


@pytest.mark.parametrize("name", CALLS)
def test_in_rows_on_a_gpu_and_channels_last_on_a_processor(name: str) -> None:
    call, sizes, expected = CALLS[name]
    x = torch.ones(sizes).contiguous(memory_format=LAST)
    with FakeContext() as context:
        there = call(context.from_meta(x.to("meta"), torch.device("cuda:0")))
        here = call(context.from_tensor(x))
    assert (tuple(there.shape), there.stride(), there.device.type) == (expected, rows(expected), "cuda")
    assert here.stride() == call(x).stride() != rows(expected)


STATISTICS: dict[str, Callable[..., Any]] = {
    "layer": lambda x: torch.native_layer_norm(x, (6,), None, None, 1e-5),
    "batch": lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5),
    "batch, legit": lambda x: torch.ops.aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_norms_are_not_rounded_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    call, x = STATISTICS[name], torch.ones(4, 6, dtype=dtype)
    with FakeContext() as context:
        there, here = call(context.from_meta(x.to("meta"), torch.device("cuda:0"))), call(context.from_tensor(x))
    wide = torch.float32 if dtype.itemsize == 2 else dtype
    assert [t.dtype for t in there] == [dtype, wide, wide] and {t.device.type for t in there} == {"cuda"}
    assert [(t.dtype, t.shape) for t in here] == [(t.dtype, t.shape) for t in call(x)]


def on_a_gpu(call: Callable[..., Any], *tensors: torch.Tensor) -> Any:
    with FakeContext() as context:
        return call(*(context.from_meta(t.to("meta"), torch.device("cuda:0")) for t in tensors))


@pytest.mark.parametrize("bias", [True, False])
def test_a_recurrent_cell_that_gpus_have_a_kernel_for(bias: bool) -> None:
    """torch has no meta kernel for one of them."""
    cell, state = torch.nn.GRUCell(4, 5, bias), torch.ones(3, 5)
    found = on_a_gpu(torch.gru_cell, torch.ones(3, 4), state, *cell.parameters())
    want = cell(torch.ones(3, 4), state)
    assert (found.shape, found.stride(), found.device.type) == (want.shape, want.stride(), "cuda")


def test_what_a_cell_keeps_and_its_gradients() -> None:
    cell, back = torch.ops.aten._thnn_fused_gru_cell, torch.ops.aten._thnn_fused_gru_cell_backward
    gates, state, bias = torch.ones(3, 15), torch.ones(3, 5), torch.ones(15)
    new, kept = on_a_gpu(cell, gates, gates, state, bias, bias)
    assert (new.shape, kept.shape) == ((3, 5), (3, 25))
    assert [tuple(g.shape) for g in on_a_gpu(lambda g, k: back(g, k, True), state, torch.ones(3, 25))] == [
        (3, 15),
        (3, 15),
        (3, 5),
        (15,),
        (15,),
    ]
