"""What differentiated calls note of their tensors: how often they were written, and references that keep no graph alive."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from opmill_runtime_cache import _native
from opmill_runtime_cache.executor.native import _load


@pytest.fixture(autouse=True)
def _loaded() -> None:
    assert _load() is None


def test_every_write_to_a_tensor_counts() -> None:
    a, b = torch.zeros(3), torch.nn.Parameter(torch.zeros(2))
    with torch.inference_mode():
        uncounted = torch.zeros(2)
    before = _native.versions((a, 1, None), (b, uncounted))
    assert before == a._version + b._version
    a.add_(1)
    with torch.no_grad():
        b[0].fill_(2)
    with torch.inference_mode():
        uncounted.add_(1)
    assert _native.versions((a, 1, None), (b, uncounted)) == before + 2
    assert _native.versions() == 0
    with pytest.raises(TypeError, match="takes tuples"):
        _native.versions([a])  # type: ignore[arg-type]


def test_leaves_and_what_is_marked_are_not_kept_alive() -> None:
    leaf, plain, marked, made = torch.ones(2, requires_grad=True), torch.ones(2), torch.ones(2), torch.ones(2, requires_grad=True) * 2
    values = (leaf, plain, marked, made, 7, None, leaf)
    found = _native.references(values, 6, bytes((0, 0, 1, 0, 1, 1)))
    assert found is not None and len(found) == 6
    assert [type(f) is weakref.ref for f in found] == [True, False, True, False, False, False]
    assert found[0]() is leaf and found[1] is plain and found[2]() is marked and found[3] is made and found[4:] == [7, None]
    del values, leaf, marked
    gc.collect()
    assert found[0]() is None and found[2]() is None


def test_references_of_wrong_arguments_are_refused() -> None:
    for wrong in (((), 0), ([], 0, b""), ((), "0", b""), ((), 0, "")):
        with pytest.raises(TypeError):
            _native.references(*wrong)  # type: ignore[arg-type]
    for count in (2, -1):
        with pytest.raises(ValueError, match="not so many"):
            _native.references((1,), count, b"\0\0")
    with pytest.raises(ValueError, match="not so many"):
        _native.references((1, 2), 2, b"\0")
