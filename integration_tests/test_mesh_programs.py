"""Tensors over a mesh of two processes, compiled, against eager."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from processes import together

PROGRAM = Path(__file__).with_name("mesh_programs.py")


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
def test_programs_over_a_mesh(tmp_path: Path) -> None:
    said = [line for out in together(PROGRAM, tmp_path) for line in out.splitlines()]
    assert said and not [line for line in said if not line.endswith(": right")]
