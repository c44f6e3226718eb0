"""examples/train_sharded.py on two processes: the same losses as eager's, and the same again after a stop."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

EXAMPLE = Path(__file__).parents[1] / "examples" / "train_sharded.py"

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")


def losses(folder: Path, compiler: str, *arguments: str) -> dict[int, float]:
    """The loss of each step that a run shows."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
    environment["OPMILL_CACHE_DIR"] = str(folder / "cache")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(EXAMPLE)]
    small = ["--width", "32", "--heads", "2", "--depth", "2", "--rows", "2", "--length", "16", "--steps", "4"]
    done = subprocess.run(
        [*command, "--compiler", compiler, *small, *arguments], env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) +loss ([\d.]+)", done.stdout)}


@pytest.mark.parametrize("split", ["1", "2"], ids=["sharded", "split"])
def test_losses_are_eagers(tmp_path: Path, split: str) -> None:
    eager, found = (losses(tmp_path, compiler, "--tensor-parallel", split) for compiler in ("eager", "opmill"))
    assert list(found) == list(eager) == [0, 1, 2, 3]
    assert all(abs(found[step] - eager[step]) < 5e-3 for step in eager)  # bfloat16 has eight bits


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    kept = ["--checkpoints", str(tmp_path / "checkpoints"), "--every", "2"]
    first, rest = losses(tmp_path, "opmill", *kept, "--stop-after", "2"), losses(tmp_path, "opmill", *kept)
    assert list(first) == [0, 1]
    assert {**first, **rest} == losses(tmp_path, "opmill")
