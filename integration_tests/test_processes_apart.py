"""A process that breaks, recompiles, dies or stands still where others do not: the others get what eager gives, or an error within the limit."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch.distributed as dist

from processes import together

PROGRAMS = Path(__file__).with_name("apart_programs.py")
pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")


def said(tmp_path: Path, case: str, codes: tuple[int, int] = (0, 0)) -> list[str]:
    return "".join(together(PROGRAMS, tmp_path, case, limit=280, codes=codes)).splitlines()


@pytest.mark.parametrize("case", ["alike", "breaks", "other code", "store without answers", "store that takes nothing"])
def test_who_compiles_something_else_still_meets_the_others(case: str, tmp_path: Path) -> None:
    lines = said(tmp_path, case)
    wanted = 1 + 2 * math.sin(4 * 2 * 2 * 0.5)
    assert len(lines) == 6
    assert all(abs(value - wanted) < 1e-5 for line in lines for value in map(float, line.strip("[]").split(",")))


def test_sharded_parameters_stay_alike_where_sizes_differ(tmp_path: Path) -> None:
    first, second = said(tmp_path, "sharded")
    assert first == second


@pytest.mark.parametrize("case", ["over a mesh", "as sent"])
def test_who_runs_uncompiled_meets_the_others(case: str, tmp_path: Path) -> None:
    first, second = said(tmp_path, case)
    assert first == second and not first.startswith("raised")


@pytest.mark.parametrize("case, code", [("killed", 9), ("stands still", 0)])
def test_an_exchange_without_the_other_raises(case: str, code: int, tmp_path: Path) -> None:
    """It gave what this process had sent, as if it were alone."""
    [line] = said(tmp_path, case, codes=(0, code))
    ends = ("Connection closed by peer", "Connection reset by peer", "Timed out")  # reset: what was sent to it had not been read
    assert line.startswith("raised RuntimeError") and any(end in line for end in ends)
    assert "GI070" in line and "rank 1" in line and f"{case}, when it was about to compile" in line
