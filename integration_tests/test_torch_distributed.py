"""Torch's own tests of several processes that ship in its wheel, compiled, against eager: a selection; all of them are run by
``benchmarks/torch_distributed_tests.py``."""

from __future__ import annotations

import pytest
import torch.distributed as dist

pytest.importorskip("expecttest", reason="torch's test models need it")
pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
SELECTED = {"models": ("mlp", 3), "operators": ("addmm", 1), "suite": ("test_all_reduce_sum", 2)}
"""Words in the names of cases, and how many cases there are at least."""


@pytest.mark.parametrize("part", SELECTED)
def test_what_torch_tests_is_as_in_eager(part: str) -> None:
    from torch_distributed_tests import differing, found

    word, least = SELECTED[part]
    rows = found(part, 2, only=word, limit=280)
    assert not differing(rows)
    assert len(rows[0]) == len(rows[1])
    assert len({row["case"] for row in rows[0] if row["outcome"] == "passed"}) >= least
    assert part == "suite" or not any(row["breaks"] for row in rows[0])
