"""Messages between two processes, and what one process has of all, in compiled code, against eager."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from processes import together

PROGRAM = Path(__file__).with_name("peer_programs.py")


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
def test_programs_of_peers(tmp_path: Path) -> None:
    said = [line for out in together(PROGRAM, tmp_path) for line in out.splitlines()]
    assert said and not [line for line in said if not line.endswith(": right")]
