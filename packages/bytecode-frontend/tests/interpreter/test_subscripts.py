"""Subscripts of tensors with lists and tuples of positions, some of which only data tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from alike import outcome, same

from opmill_bytecode_frontend import capture

PROGRAMS = """
r, c = zip(*torch.stack([i, i], 1)); y = x.clone(); y[r, c] = 0.0
r, c = zip(*torch.stack([i, i], 1)); y = x[r, c] * 2
y = x[[i[0], i[1]], [1, i[2]]] + x[:, [i[0], 2]].sum()
y = x[[i[0], 0],] + 1
y = x[1:, [i[0], i[1]]] + x[..., [i[0]]][:2]
y = x[[-i[0], -1], [i[1], 0]], x[[-4 + i[0]], None]
y = x[[i[0] + 5, i[1]], [0, 1]]
y = x.clone(); y[[i[0], i[1]], [0, 1]] += 1; y[:, [i[2]]] = x[:, :1]
y = x[[i[0], x.shape[0] - 1], (0, i[1])], x[(i[0], 1), 1:]
y = x[1, [i[1], 2]]
""".strip().splitlines()


@pytest.mark.parametrize("text", PROGRAMS)
def test_lists_of_positions(text: str) -> None:
    space: dict[str, Any] = {"torch": torch}
    exec(f"def f(x, i):\n    {text}\n    return y", space)
    made: list[Any] = []
    compiled = capture(space["f"], "eager", fullgraph=True, on_translation=made.append)
    for k in range(5):
        positions = torch.randint(0, 3, (4,), generator=torch.Generator().manual_seed(k))
        given = [(torch.arange(12.0).reshape(3, 4) + k, positions) for _ in range(2)]
        want, found = outcome(space["f"], *given[0]), outcome(compiled, *given[1])
        assert same(want, found)
    assert len(made) == 1


@pytest.mark.parametrize(
    "text", ["x[[i[0] > 0, i[1] > 0, i[2] > 5],]", "x[[i[0].int(), i[1].int()], [0, 1]]", "x[[i[0].byte(), i[1].byte(), i[2].byte()],]"]
)
def test_other_lists_are_read_by_torch(text: str) -> None:
    space: dict[str, Any] = {"torch": torch}
    exec(f"def f(x, i):\n    return {text}", space)
    compiled = capture(space["f"], "eager")
    for k in range(3):
        positions = torch.randint(0, 3, (4,), generator=torch.Generator().manual_seed(k))
        assert same(*(outcome(each, torch.arange(12.0).reshape(3, 4), positions) for each in (space["f"], compiled)))
