"""Parts of tensors whose bounds only data tell: slices by tensors, ``narrow``, and bounds that are divided, are one graph for any data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from alike import outcome, same

from opmill_bytecode_frontend import capture

NUMBERS = (3, 0, 5, 1, 12, 2, -1, 7, -5, -12, 11, -13)


def written(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[n % 5 :, : n % 7] += 1
    y.narrow(0, n % 4, 2).zero_()
    return y


PARTS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "a tensor as an end": lambda x, n: x[:, :n] * 2,
    "a tensor as a beginning": lambda x, n: x[n:] + 1,
    "both": lambda x, n: x[n : n + 2].sum(0),
    "of several dimensions": lambda x, n: x[n:, :n].sum(-1),
    "a tensor of one item": lambda x, n: x[: n.reshape(1)],
    "another type": lambda x, n: x[: n.int()],
    "the first ones": lambda x, n: x.narrow(0, 0, int(n)).cumsum(0),
    "from there on": lambda x, n: x.narrow(1, int(n), 1) * 2,
    "from a tensor on": lambda x, n: x.narrow(0, n, 1) * 2,
    "by keywords": lambda x, n: torch.narrow(x, dim=-1, start=n, length=n % 3),
    "a half": lambda x, n: (x[: n.item() // 2], n.item() // 2),
    "a rest": lambda x, n: (x[n.item() % 5 :], x * (n.item() % 7)),
    "half of a rest": lambda x, n: x[(n.item() % 9) // 2 : (n.item() // 3) % 5 + 4],
    "both at once": lambda x, n: divmod(n.item(), 4),
    "written": written,
}


@pytest.mark.parametrize("program", PARTS.values(), ids=PARTS)
def test_is_one_graph(program):
    graphs: list[object] = []

    def counting(gm: torch.fx.GraphModule, inputs: object) -> Any:
        graphs.append(gm)
        return gm.forward

    vars(counting)["sizes_of_data"] = True
    compiled = capture(program, counting, fullgraph=True)
    for number in NUMBERS:
        args = torch.arange(144.0).reshape(12, 12), torch.tensor(number)
        want, found = outcome(program, *args), outcome(compiled, *args)
        assert same(want, found), (number, want, found)
    assert len(graphs) == 1


@pytest.mark.parametrize("by", [1, 2, 3, 7])
def test_numbers_are_divided_as_python_does(by):
    def program(n: torch.Tensor) -> Any:
        number = n.item()
        return number // by, number % by, torch.zeros(number % by + 1), -number // by

    compiled = capture(program, "eager", fullgraph=True)
    for number in range(-9, 10):
        assert same(program(torch.tensor(number)), compiled(torch.tensor(number)))
