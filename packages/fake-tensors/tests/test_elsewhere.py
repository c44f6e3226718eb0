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
