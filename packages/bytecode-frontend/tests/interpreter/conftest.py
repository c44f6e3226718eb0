"""Runs a function plainly and captured, and compares: result, changed arguments, exception."""

from __future__ import annotations

import copy
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
import torch

from opmill_bytecode_frontend import capture

sys.path.insert(0, str(Path(__file__).parent))  # what writes programs, beside these tests

from alike import same  # noqa: E402 - it lies there


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What only the collector finds counts as alive."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def outcome(fn: Any, args: Any) -> Any:
    args = copy.deepcopy(args)
    try:
        return fn(*args), args
    except Exception as exc:
        return (type(exc).__name__, exc.args), args


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 4, generator=generator), torch.randn(4, 4, generator=generator)


def compare(fn: Any) -> None:
    """``fn(a, b)`` is captured whole, and gives what it gives plainly, on a miss and on a hit."""
    graphs = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = capture(fn, backend, fullgraph=True)
    want = outcome(fn, tensors())
    assert same(want, outcome(compiled, tensors()))
    assert graphs
    assert same(want, outcome(compiled, tensors()))
    assert len(graphs) == 1


@pytest.fixture(scope="session")
def check() -> Callable[[Any], None]:
    """``check(fn)``: the captured form of ``fn(a, b)`` does as it does."""
    return compare
