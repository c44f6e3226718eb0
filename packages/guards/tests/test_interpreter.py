"""Builds of Python that the native code does not know."""

import sysconfig

import pytest

from opmill_guards.interpreter import refuse_free_threading


@pytest.mark.parametrize(("flag", "refused"), [(None, False), (0, False), (1, True)])
def test_without_a_global_lock_nothing_is_imported(monkeypatch, flag, refused):
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: flag if name == "Py_GIL_DISABLED" else None)
    if refused:
        with pytest.raises(ImportError, match="GU090"):
            refuse_free_threading()
    else:
        refuse_free_threading()
