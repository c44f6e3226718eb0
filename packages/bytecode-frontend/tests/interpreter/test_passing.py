"""A capture that fails for lack of memory, files or processes fails that once."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.options import CaptureOptions


class Failing:
    """A backend that fails so often, then does not."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.times, self.asked = error, times, 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        self.asked += 1
        if self.asked <= self.times:
            raise ValueError("it did not work") from self.error
        return gm.forward


def f(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(errno.EMFILE, "too many"), RuntimeError("DefaultCPUAllocator: not enough memory")], ids=repr
)
def test_the_next_call_is_captured(error: Exception) -> None:
    backend = Failing(error, 1)
    compiled = capture(f, backend)
    for count in (0, 1, 1):
        assert compiled(torch.ones(3)).tolist() == [3.0] * 3
        assert len(compiled.entries) == count
    assert backend.asked == 2


def test_where_no_graph_may_break_it_is_raised_and_the_next_call_is_captured() -> None:
    compiled = capture(f, Failing(MemoryError(), 1), fullgraph=True)
    with pytest.raises(ValueError, match="did not work") as found:
        compiled(torch.ones(3))
    assert isinstance(found.value.__cause__, MemoryError)
    assert compiled(torch.ones(3)).tolist() == [3.0] * 3
    assert len(compiled.entries) == 1


@pytest.mark.parametrize(
    ("error", "most"), [(OSError(errno.EAGAIN, "no process"), 4), (MemoryError(), 20), (KeyError("a bug"), 1)], ids=repr
)
def test_how_often_it_is_tried(error: Exception, most: int) -> None:
    """For a bug not again, for lack of memory at each call, for what else may be lacking as often as there may be captures."""
    backend = Failing(error, 1000)
    compiled = capture(f, backend, dynamic=False, options=CaptureOptions(recompile_limit=3))
    for _ in range(20):
        assert compiled(torch.ones(3)).tolist() == [3.0] * 3
    assert most <= backend.asked <= most + 1
