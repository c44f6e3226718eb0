"""A device that no package here knows of: found by entry point, its plans run natively, its kernels by what it says loads them."""

import importlib.util

import pytest

PROGRAMS = (
    "it_is_found_beside_those_of_this_project",
    "a_model_runs_in_its_kernels",
    "sizes_change",
    "numbers_are_read_from_it",
    "memory_goes_back",
    "memory_of_another_device_is_refused_by_its_plan",
)


@pytest.mark.skipif(importlib.util.find_spec("toy_device") is None, reason="integration_tests/toy_device is not installed")
def test_programs_run_on_it(script):
    calls = "; ".join(f"print({program!r}, flush=True); toy_programs.{program}()" for program in PROGRAMS)
    said = script(f"import sys; sys.path.insert(0, {__file__!r}.rpartition('/')[0]); import toy_programs; {calls}")
    assert said.split() == list(PROGRAMS)
