"""Kernels of this process are interpreted: the switch must stand before triton is imported."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

os.environ["TRITON_INTERPRET"] = "1"
sys.path.append(str(Path(__file__).parent))  # tests of one thing share what they compare with

HAVE_TRITON = importlib.util.find_spec("triton") is not None
NEEDS_TRITON = "triton is not installed; the tests run wherever it is, GPU or none (pip install 'opmill-kernel-gen-triton[triton]')"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="the whole table of cases in every form (minutes)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: the whole table in every form; runs with --slow")
    config.addinivalue_line("markers", "triton: needs triton")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "triton" in item.keywords and not HAVE_TRITON:
            item.add_marker(pytest.mark.skip(reason=NEEDS_TRITON))
        if "slow" in item.keywords and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="the whole table takes minutes: pytest --slow, on any machine"))


@pytest.fixture(autouse=True)
def _quiet_arithmetic():
    """The interpreter computes with numpy, which warns of what is meant to happen: overflow, NaN, division by zero."""
    import numpy

    with numpy.errstate(all="ignore"):
        yield
