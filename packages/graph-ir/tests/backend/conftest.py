"""What tests of the whole way share: a store, and with which kernel generators graphs are compiled."""

import pytest

from opmill_graph_ir.backend import installed_generators
from opmill_runtime_cache.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(params=["kernels", "operators"])
def generators(request):
    if request.param == "operators":
        return ()
    if not installed_generators():
        pytest.skip("no kernel generator is installed")
    return installed_generators()
