"""Losses of training over two processes, compiled, are as close to float64 as eager's; the whole table is
``benchmarks/distributed_losses.py``."""

from __future__ import annotations

import pytest
import torch.distributed as dist

NAMES = [
    "fsdp2 + tensor parallel",
    "ddp, inside | accumulated",
    "fsdp2, outside",
    "fsdp2, blocks compiled before | accumulated",
    "fsdp2, bfloat16",
]


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
def test_losses_are_as_good_as_those_of_eager() -> None:
    from distributed_losses import is_right, together

    for rows in together(2, 6, NAMES, 280):
        assert [row["configuration"] for row in rows] == NAMES
        assert not [row for row in rows if not is_right(row) or row["fallbacks"]]
        assert not [row["reasons"] for row in rows if "before" in row["configuration"] and row["breaks"]]
