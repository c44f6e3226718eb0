"""Free-threaded builds of Python are refused where the package is imported."""

import sysconfig

import pytest

from opmill_runtime_cache.interpreter import refuse_free_threading


@pytest.mark.parametrize("build", [1, 0, None])
def test_free_threaded_builds_are_refused(monkeypatch, build):
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": build}.get)
    if not build:
        refuse_free_threading()
        return
    with pytest.raises(ImportError, match="RC090: .*free-threaded"):
        refuse_free_threading()
