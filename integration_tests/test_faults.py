"""Calls of the system and allocations that fail while something is compiled; every n is tried by ``nox -s faults``."""

from __future__ import annotations

import os
import sys

import pytest

PROGRAM = """
import random, sys, torch
import fault_injection as faults

torch.set_num_threads(1)
kind, model, last, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
faults.warm()
chances, wanted = faults.baseline(kind, model)
for at in sorted(random.Random(0).sample(range(1, (chances or last) + 1), count)):
    said = faults.one(kind, model, at, wanted)
    assert not said, f"{kind} {at}: {said}"
print("survived")
"""


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform != "linux", reason="needs fork, and limits of memory that hold")
@pytest.mark.parametrize(
    ("kind", "model", "last", "count"),
    [("calls", "mlp", 0, 8), ("memory", "mlp", 300_000, 4), ("burst", "mlp", 300_000, 4), ("limit", "mlp", 60, 4)],
)
def test_a_sample_of_faults_is_survived(script, kind, model, last, count):
    if kind in ("memory", "burst"):
        pytest.importorskip("_testcapi")
    code = PROGRAM.replace("sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])", repr((kind, model, last, count))[1:-1])
    assert script(code, OMP_NUM_THREADS="1").strip().endswith("survived")
