"""Fixtures: a store with kernels built once by the system compiler, and hypothesis made repeatable."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from opmill_runtime_cache.store import Store, key_of

sys.path.insert(0, str(Path(__file__).parent))  # helpers beside the tests

from runtime_kernels import KERNELS

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Store:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder: Path = tmp_path_factory.mktemp("kernels")
    source = folder / "kernels.cpp"
    source.write_text(KERNELS)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(folder / "kernels.so"), str(source)], check=True)
    store = Store(folder / "store")
    store.put("cpu-so", key_of(KERNELS), (folder / "kernels.so").read_bytes())
    return store
