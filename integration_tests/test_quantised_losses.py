"""Losses of training with quantised parts, compiled, are eager's, without more breaks than torch.compile has; the whole table is
``benchmarks/quantised_losses.py``."""

from __future__ import annotations

import pytest
import torch.distributed as dist

pytest.importorskip("torchao")


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
def test_losses_and_breaks() -> None:
    from quantised_losses import is_right, together

    names = ["float8", "checkpoints that count"]
    rows = together("fsdp2", 2, 2, names)
    assert [row["configuration"] for row in rows] == names
    assert not [row for row in rows if not is_right(row)]
