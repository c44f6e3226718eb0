"""What calls that compute arrays give, compared with NumPy's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from opmill_bytecode_frontend import capture

np = pytest.importorskip("numpy", minversion="2.0")

Close = Callable[[Any, Any], None]
"""Asserts that two arrays of one type and shape agree."""


def same(got: Any, want: Any, close: Close) -> None:
    assert type(got) is type(want)
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w, close)
    elif isinstance(want, (np.ndarray, np.generic)):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        close(got, want)
    else:
        assert got == want


def lie_alike(got: Any, want: Any) -> None:
    assert [s for n, s in zip(got.shape, got.strides) if n != 1] == [s for n, s in zip(want.shape, want.strides) if n != 1]


def outcome(function: Any, args: list[Any]) -> Any:
    try:
        return [function(*args), args]
    except Exception as error:
        return [type(error).__name__, str(error), args]


def near(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def as_numpy(program: Callable[[], Any]) -> None:
    """Asserts that a program without arguments gives the same captured, warnings apart."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(capture(program, "eager")(), program(), near)
