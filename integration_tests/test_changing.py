"""Things that change between calls, in them and behind graph breaks: ``benchmarks/changing.py`` has a row for each, and six programs of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "changing.py"
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_read_is_what_is_there_and_what_is_written_is_seen(part: int) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--part", str(part), "--of", str(PARTS)], capture_output=True, text=True, timeout=600
    )
    assert not done.returncode, done.stdout[-4000:] + done.stderr[-2000:]


def test_a_difference_is_seen() -> None:
    command = "import sys, changing; print(list(changing.differences(('it', '[1]', 'torch.compiler.is_compiling()', 'o.append(n)'))))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=120, cwd=SCRIPT.parent)
    assert "it, between calls, call 0" in done.stdout, done.stderr[-2000:]
