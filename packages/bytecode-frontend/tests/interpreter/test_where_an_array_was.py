"""What stands at a later call where an array stood: each is compared with what was assumed of the array, and none ends in an error of the
capture."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.entry.varying import Seen


class Shaped(NamedTuple):
    shape: tuple[int, ...]


class Typed:
    dtype = np.dtype("float64")


def sums(it: Any) -> Any:
    return getattr(it, "ndim", None), getattr(it, "shape", None), float((it * 2).sum()) if isinstance(it, np.ndarray) else 0.0


OTHERS = [
    Shaped((2, 3)),
    Typed(),
    None,
    torch.ones(2),
    np.float64(3),
    5,
    "text",
    np.ones((2, 4)),
    np.ones((2, 5)),
    np.ones((2, 3), "int32"),
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: type(other).__name__)
def test_what_comes_instead_of_an_array(other: Any) -> None:
    compiled = capture(sums, "eager")
    for given in (np.ones((2, 3)), other, np.ones((2, 3)), other):
        assert compiled(given) == sums(given)


def test_an_error_of_comparing_is_not_the_programs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fails(*_: object) -> None:
        raise AttributeError("of the capture")

    compiled = capture(sums, "eager")
    assert compiled(np.ones((2, 3))) == sums(np.ones((2, 3)))
    monkeypatch.setattr(Seen, "note", fails)
    assert compiled(np.ones((2, 4))) == sums(np.ones((2, 4)))
    assert "internal error" in caplog.text
