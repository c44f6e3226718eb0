"""Random tensor programs through capture, lowering, scheduling, generated kernels and the native plan, against eager.

``benchmarks/fuzz_graphs.py`` and its neighbours run thousands; here are some, and those that showed bugs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from opmill_runtime_cache.store import Store

fuzz_graphs = pytest.importorskip("fuzz_graphs")

fuzz_schedules = pytest.importorskip("fuzz_schedules")
fuzz_training = pytest.importorskip("fuzz_training")
FIRST, COUNT = 200_000, 80


@pytest.fixture
def inference() -> Iterator[None]:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_random_programs(inference: None, tmp_path: Path) -> None:
    found = list(fuzz_graphs.verdicts(range(FIRST, FIRST + COUNT), Store(tmp_path), batch=60))
    bad = [f"seed {v.program.seed}: {v.kind}: {v.detail}\n{v.program.source}" for v in found if v.kind in ("crash", "wrong")]
    assert not bad, "\n".join(bad)
    assert sum(v.kind == "right" for v in found) > COUNT * 0.9, "most programs must be compiled to kernels"


def test_gradients_of_random_programs(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(fuzz_training.verdicts(range(FIRST, FIRST + COUNT // 2), Store(tmp_path), batch=40))
    bad = [f"seed {v.program.seed}: {v.kind}: {v.detail}\n{v.program.source}" for v in found if v.kind in ("crash", "wrong")]
    assert not bad, "\n".join(bad)
    assert sum(v.kind == "right" for v in found) > COUNT // 8


def test_fused_kernels_of_random_programs(inference: None, tmp_path: Path) -> None:
    assert not list(fuzz_schedules.problems(range(60), Store(tmp_path)))
