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
