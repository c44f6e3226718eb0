"""Optimizers that decide by their own count: their steps are one graph, with the numbers and the state of eager's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from alike import near, same

from opmill_bytecode_frontend import capture

OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("ASGD", {}), ("ASGD", {"lr": 0.1, "t0": 3.0}), ("ASGD", {"weight_decay": 0.1, "maximize": True}), ("ASGD", {"lambd": 0.1, "alpha": 0.5, "t0": 0.0}),
    ("RAdam", {}), ("RAdam", {"weight_decay": 0.1}), ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"betas": (0.5, 0.6), "eps": 1e-3}), ("RAdam", {"maximize": True, "lr": 0.1}), ("RAdam", {"foreach": False}),
]  # fmt: skip
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("ASGD", {"foreach": True}), ("RAdam", {"foreach": True}), ("ASGD", {"lr": torch.tensor(0.1), "foreach": False}),
    ("RAdam", {"lr": torch.tensor(0.1), "foreach": False}),
]  # fmt: skip


class World:
    def __init__(self, name: str, options: dict[str, Any], dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        shapes = [(3, 2), (4,), ()]
        self.params = [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in shapes]
        self.optimizer = getattr(torch.optim, name)(self.params, **copy.deepcopy(options))

    def step(self, turn: int) -> None:
        generator = torch.Generator().manual_seed(turn)
        for param in self.params[: 2 + turn % 2]:
            param.grad = torch.randn(param.shape, generator=generator, dtype=param.dtype)

    def state(self) -> Any:
        return [p.detach() for p in self.params], self.optimizer.state_dict()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_steps_are_one_graph(number: int, dtype: torch.dtype) -> None:
    name, options = OPTIONS[number]
    ours, theirs = World(name, options, dtype), World(name, options, dtype)
    graphs: list[int] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        graphs.append(len(gm.graph.nodes))
        return gm.forward

    breaks: list[object] = []
    compiled = capture(lambda w: w.optimizer.step(), backend, on_break=breaks.append)
    for turn in range(24):
        for world in (ours, theirs):
            world.step(turn)
        compiled(ours)
        theirs.optimizer.step()
        assert same(ours.state(), theirs.state(), near(1e-9, 1e-10) if dtype is torch.float64 else near(1e-4, 1e-5)), turn
    assert not breaks and 1 <= len(graphs) <= 3  # a parameter that gets its first gradient later is another graph


@pytest.mark.parametrize("number", range(len(OTHERS)))
@pytest.mark.filterwarnings("ignore")
def test_other_ways_to_step(number: int) -> None:
    name, options = OTHERS[number]
    ours, theirs = World(name, options, torch.float64), World(name, options, torch.float64)
    compiled = capture(lambda w: w.optimizer.step(), "eager")
    for turn in range(8):
        for world in (ours, theirs):
            world.step(turn)
        compiled(ours)
        theirs.optimizer.step()
        assert same(ours.state(), theirs.state(), near(1e-9, 1e-10)), turn
