"""State dicts, checkpoints, accumulation and records of models that are sharded and compiled, in any order, on two processes; against eager."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from processes import together

PROGRAMS = Path(__file__).with_name("sharded_states.py")


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
def test_states_of_sharded_models_are_those_of_eager(tmp_path: Path) -> None:
    lines = "".join(together(PROGRAMS, tmp_path, str(tmp_path / "checkpoints"))).splitlines()
    assert lines and not [line for line in lines if not line.endswith(": right")]
