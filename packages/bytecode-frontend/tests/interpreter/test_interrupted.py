"""A handler of a signal raises wherever Python code is (Ctrl-C, a time limit): the exception reaches the program, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MOMENTS = 60


@pytest.mark.parametrize("base", ["BaseException", "KeyboardInterrupt", "Exception", "TimeoutError"])
def test_interrupted_at_many_moments(base: str) -> None:
    """In a process of its own: frames, hooks and locks that are left in disorder crash or hang it."""
    program = Path(__file__).with_name("interrupting.py")
    result = subprocess.run([sys.executable, "-X", "faulthandler", program, base, str(MOMENTS)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-4000:]
    arrived, lost = map(int, result.stdout.split())
    assert arrived + lost == 2 * MOMENTS
    assert lost <= MOMENTS // 10, result.stderr[-4000:]  # in finalizers Python itself loses it
