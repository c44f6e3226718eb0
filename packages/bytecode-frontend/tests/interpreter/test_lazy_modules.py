"""Modules whose parameters get their sizes from the first input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from opmill_bytecode_frontend import capture

MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU()),
    "several": lambda: nn.Sequential(
        nn.Dropout(0.3), nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.Dropout(), nn.LazyLinear(3)
    ),
}


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_first_call_runs_as_it_is_and_the_next_is_one_graph(name: str, fullgraph: bool) -> None:
    made: list[Any] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        made.append(gm)
        return gm.forward

    compiled_model, plain = MODELS[name](), MODELS[name]()
    compiled = capture(lambda x: compiled_model(x) + 1, backend, fullgraph=fullgraph)
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for call in range(4):
        torch.manual_seed(call)
        got = compiled(x)
        torch.manual_seed(call)
        assert torch.equal(got, plain(x) + 1)
        assert len(made) == min(call, 1)
    assert [type(each) for each in compiled_model] == [type(each) for each in plain]


def test_a_parameter_that_stays_without_a_size_ends_in_running_uncompiled() -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 3), "unused": nn.LazyLinear(2)})
    compiled = capture(lambda x: model["used"](x) * len([p for p in model.parameters() if p.requires_grad]), "eager")
    x = torch.randn(2, 3)
    for _ in range(12):
        assert torch.equal(compiled(x), model["used"](x) * 4)
