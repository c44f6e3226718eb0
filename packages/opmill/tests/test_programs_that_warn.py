"""Warnings of operators are results: what eager gives, compiled code gives, in the same lines and as often, by whatever it runs."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs_that_warn.py")
OURS = {"OpmillWarning", "CaptureWarning", "GraphWarning"}


@functools.cache
def told(side, action):
    done = subprocess.run([sys.executable, str(PROGRAMS), side, action], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    calls = json.loads(done.stdout)
    return {name: [([w for w in said if w[0] not in OURS], raised) for said, raised in each] for name, each in calls.items()}, done.stderr


@pytest.mark.parametrize("action", ["always", "default", "error"])
@pytest.mark.parametrize("side", ["opmill", "captured"])
def test_warnings_are_those_of_eager(side, action):
    expected, (found, printed) = told("eager", action)[0], told(side, action)
    different = {name: (expected[name], found[name]) for name in expected if expected[name] != found[name]}
    assert not different
    assert "] Warning:" not in printed, "a warning of C++ that is none of Python's"


def test_most_of_the_programs_warn():
    assert sum(any(said for said, _ in calls) for calls in told("eager", "always")[0].values()) >= 50
