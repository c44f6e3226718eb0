"""What the compiler has to say of a program is no outcome of the program."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


@pytest.mark.parametrize("kind", ["another at each call", "compiled too often"])
def test_filters_that_make_errors_of_warnings_make_none_of_the_compilers(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def program(x: torch.Tensor, given: Any) -> Any:
        return x + (1 if given == "a" else 2) if kind == "another at each call" else x * 2 if type(given).__name__ == "C3" else x

    captured = capture(program, "eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(20):
            given = f"text {number}" if kind == "another at each call" else type(f"C{number}", (), {})()
            assert torch.equal(captured(torch.ones(2), given), program(torch.ones(2), given))
    assert [message.partition(":")[0] for message in caplog.messages] == ["FE067" if kind == "another at each call" else "FE090"]
