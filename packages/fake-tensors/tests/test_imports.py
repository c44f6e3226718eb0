"""What is left of an import that failed."""

import sys
import types

from opmill_fake_tensors.imports import Imports, forget_orphans


def test_modules_of_packages_that_are_gone_are_forgotten(monkeypatch):
    for name in ("sympy_like", "sympy_like.core", "sympy_like.core.deep", "other_like.core"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert not [name for name in forget_orphans() if "_like" in name]
    monkeypatch.delitem(sys.modules, "sympy_like")
    assert [name for name in forget_orphans() if "_like" in name] == ["sympy_like.core", "sympy_like.core.deep"]
    assert "sympy_like.core.deep" not in sys.modules and "other_like.core" in sys.modules


def test_it_is_looked_at_once_behind_a_failure(monkeypatch):
    looked = []
    monkeypatch.setattr("opmill_fake_tensors.imports.forget_orphans", lambda: looked.append(1))
    state = Imports()
    state.mend()
    state.suspect = True
    state.mend()
    state.mend()
    assert looked == [1]
