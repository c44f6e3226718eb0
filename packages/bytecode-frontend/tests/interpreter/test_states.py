"""States of torch that captured code sets to what they are: no graph ends, and each call sees that they still are so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import Unsupported, capture


def allowed() -> bool:
    return bool(torch.backends.cuda.matmul.allow_tf32)


def allow(on: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = on


STATES: dict[str, tuple[Any, Any, Any, Any]] = {
    "precision": (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision, "high", "highest"),
    "lowest precision": (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision, "medium", "high"),
    "of GPUs": (allow, allowed, True, False),
    "warnings": (torch.set_warn_always, torch.is_warn_always_enabled, False, True),
    "threads": (torch.set_num_threads, torch.get_num_threads, 1, 2),
}


@pytest.fixture(params=STATES)
def state(request: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    threads = torch.get_num_threads()
    yield STATES[request.param]
    torch.set_float32_matmul_precision("highest")
    torch.set_warn_always(False)
    torch.set_num_threads(threads)


def test_said_again(state):
    put, get, value, other = state

    def program(x: torch.Tensor) -> Any:
        put(value)
        return x @ x + 1, get()

    x = torch.ones(2, 2)
    put(value)
    capture(program, "eager", fullgraph=True)(x)
    compiled = capture(program, "eager")
    for before in (value, value, other, value, other):
        put(before)
        product, said = compiled(x)
        assert torch.equal(product, x @ x + 1)
        assert said == get() == value


def test_another_value_ends_the_graph(state):
    put, _, value, other = state
    put(other)
    with pytest.raises(Unsupported, match="FE010"):
        capture(lambda x: (put(value), x + 1)[1], "eager", fullgraph=True)(torch.ones(2))
