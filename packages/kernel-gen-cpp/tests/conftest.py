"""One store a test session; the helpers beside these tests can be imported, whatever import mode pytest runs in."""

import sys
from pathlib import Path

import pytest

from opmill_runtime_cache.store import Store

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))
