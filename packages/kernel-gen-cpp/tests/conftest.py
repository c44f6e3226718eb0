"""One store a test session."""

import pytest

from opmill_runtime_cache.store import Store


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))
