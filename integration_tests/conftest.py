"""Shared by the tests of all packages together. Every test has a cache folder of its own, no warning is hidden by an earlier test, and nothing
that one has compiled is found by another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import opmill
from opmill_fake_tensors import telling
from opmill_graph_ir import backend

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))  # the builders of real models
sys.path.insert(0, str(Path(__file__).resolve().parent))  # what several files here share


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from opmill.errors import warn_once

    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path / "cache"))
    warn_once.cache_clear()
    torch.manual_seed(0)
    yield
    opmill.reset()  # functions made anew share what was compiled of their code


@pytest.fixture(autouse=True)
def _filters_are_obeyed(request: pytest.FixtureRequest) -> Iterator[None]:
    """A compiler's own warnings are logged where a filter makes errors of them, for a program must not fail by them. A test does."""
    backend._warn_mismatch.cache_clear()
    with telling.logged() as texts:
        yield
    if texts and "caplog" not in request.fixturenames:
        pytest.fail("\n".join(["warnings that this test makes errors of:", *texts]))


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """Runs Python code in a new process with this test's cache folder; its standard output. Fails with its standard error."""

    def run(code: str, **environment: str) -> str:
        done = start(code, **environment)
        out, err = done.communicate(timeout=240)
        assert done.returncode == 0, err
        return out

    def start(code: str, **environment: str) -> subprocess.Popen[str]:
        variables = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent / "benchmarks"), **environment}
        return subprocess.Popen([sys.executable, "-c", code], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    run.start = start  # type: ignore[attr-defined]
    return run
