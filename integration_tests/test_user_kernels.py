"""Triton kernels of the program's own, kept in compiled code: see user_kernels.py for the programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch


def test_as_the_program_launches_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    if not torch.cuda.is_available():
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("user_kernels.py"))], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert len(lines) > 20 and not [line for line in lines if not line.endswith(": right")]
