"""torch.compile's own options: said in the words of this package, ignored with one warning, or left for whoever checks names."""

import pytest

from opmill import torch_options
from opmill.torch_options import translated

KNOWN = {"freeze": False, "autotune": False, "cuda_graphs": False}


@pytest.fixture(autouse=True)
def told(monkeypatch):
    said = []
    monkeypatch.setattr(torch_options, "warn_once", lambda code, text: said.append((code, text)))
    return said


def test_what_means_the_same(told):
    assert translated({"triton.cudagraphs": 1, "freezing": True}, KNOWN) == {"cuda_graphs": True, "freeze": True}
    assert translated({"max-autotune": True}, KNOWN) == {"autotune": True} and not told


def test_a_name_of_this_package_goes_before_what_torchs_means():
    assert translated({"freezing": True, "freeze": False}, KNOWN) == {"freeze": False}


def test_what_means_nothing_here_is_ignored_and_said(told):
    assert translated({"epilogue_fusion": True, "triton.unique_kernel_names": True, "guard_filter_fn": len, "freeze": True}, KNOWN) == {
        "freeze": True
    }
    [(code, text)] = told
    assert code == "OM020" and text.endswith("epilogue_fusion, guard_filter_fn, triton.unique_kernel_names")


def test_other_names_stay(told):
    given = {"no_such_option": 1, 3: 4}
    assert translated(given, KNOWN) == given and not told
    assert given == {"no_such_option": 1, 3: 4}


def test_a_torch_that_keeps_them_elsewhere(monkeypatch, tmp_path):
    torch_options._names.cache_clear()
    monkeypatch.setattr(torch_options.torch, "__file__", str(tmp_path / "__init__.py"))
    try:
        assert translated({"epilogue_fusion": True}, KNOWN) == {"epilogue_fusion": True}
    finally:
        torch_options._names.cache_clear()
