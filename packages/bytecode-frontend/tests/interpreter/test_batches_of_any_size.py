"""Function transforms over batches whose size changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from alike import near, outcome, same
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn import functional as F

from opmill_bytecode_frontend.entry.capture import capture

WEIGHTS = torch.arange(12.0, dtype=torch.float64).view(4, 3) / 12
VECTOR = torch.arange(4.0, dtype=torch.float64)

OPEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "a product of vectors": lambda x: vmap(lambda v: v @ VECTOR)(x),
    "of matrices": lambda x: vmap(lambda v: v @ WEIGHTS)(x),
    "of one matrix each": lambda x: vmap(lambda v: v[None] @ WEIGHTS)(x),
    "weights in a batch": lambda x: vmap(lambda w: x @ w)(WEIGHTS.expand(5, 4, 3)),
    "two batches": lambda x: vmap(lambda a, b: (a * b).sum())(x, x.flip(0)),
    "one within another": lambda x: vmap(lambda a: vmap(lambda b: (a * b).sum())(x))(x),
    "along columns": lambda x: vmap(lambda v: v.sin(), in_dims=1, out_dims=1)(x.T),
    "a dictionary": lambda x: vmap(lambda d: {"sum": d["x"].sum(), "twice": d["x"] * 2})({"x": x}),
    "norms": lambda x: vmap(lambda v: v / v.norm())(x),
    "largest": lambda x: vmap(lambda v: torch.softmax(v, -1).topk(2)[0])(x),
    "distances": lambda x: vmap(lambda v: ((x - v) ** 2).sum(-1))(x),
    "gradients": lambda x: vmap(grad(lambda v: v.tanh().sum()))(x),
    "gradients of weights": lambda x: vmap(grad(lambda w, v: (v @ w).pow(2).sum()), (None, 0))(WEIGHTS, x),
    "gradients of a layer": lambda x: vmap(grad(lambda w, v: F.linear(v, w).pow(2).sum()), (None, 0))(WEIGHTS.T, x),
    "a jacobian each": lambda x: vmap(jacrev(lambda v: (v @ WEIGHTS).sin()))(x),
    "a jacobian each, forward": lambda x: vmap(jacfwd(lambda v: (v @ WEIGHTS).sin()))(x),
    "a hessian each": lambda x: vmap(hessian(lambda v: (v @ WEIGHTS).sin().sum()))(x),
    "a derivative": lambda x: jvp(lambda v: (v**3).sum(), (x,), (torch.ones_like(x),)),
    "of a gradient": lambda x: jvp(grad(lambda v: (v**3).sum()), (x,), (torch.ones_like(x),)),
    "backward": lambda x: vjp(lambda v: v.sin(), x)[1](x),
    "a graph around it": lambda x: vmap(lambda v: v.cumsum(0))(x * 2).sum(0) + x.mean(0),
}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 5), torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())  # type: ignore[no-any-return]


torch.manual_seed(0)
NET = Net().double()


def of_each_sample(x: torch.Tensor) -> Any:
    weights = {name: each.detach() for name, each in NET.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], v: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(NET, weights, (v[None],)), y[None])

    return vmap(grad(loss), (None, 0, 0))(weights, x, x.argmax(-1) % 3)


ANY: dict[str, Callable[[torch.Tensor], Any]] = {
    "gradients of each sample": of_each_sample,
    "convolutions": lambda x: vmap(lambda v: F.conv1d(v[None, None], torch.ones(1, 1, 2, dtype=v.dtype)))(x),
    "norms of layers": lambda x: vmap(lambda v: F.layer_norm(v, (4,)))(x),
    "scattered": lambda x: vmap(lambda v: torch.zeros(4, dtype=v.dtype).scatter_add(0, v.argsort(), v))(x),
    "selected": lambda x: vmap(lambda v: torch.where(v > 0, v, v * 0.1).index_select(0, torch.tensor([0, 2])))(x),
    "solved": lambda x: vmap(lambda v: torch.linalg.solve(torch.eye(4, dtype=v.dtype) + torch.outer(v, v), v))(x),
    "in chunks": lambda x: vmap(lambda v: v.sin(), chunk_size=2)(x),
    "of other sizes": lambda x: vmap(lambda a, b: a + b)(x, torch.ones(5)),
    "a decision": lambda x: vmap(lambda v: v if v.sum() > 0 else -v)(x),
    "written to": lambda x: vmap(lambda v: v.clone().mul_(2).add_(1))(x),
}


def calls(function: Callable[..., Any], compiled: Callable[..., Any]) -> None:
    for size in (3, 5, 4, 7, 6, 1, 9):
        x = torch.rand(size, 4, generator=torch.Generator().manual_seed(size), dtype=torch.float64) - 0.5
        given, expected = outcome(compiled, x.clone()), outcome(function, x.clone())
        assert same(given, expected, near(1e-10, 1e-12)), (size, given, expected)


@pytest.mark.parametrize("name", OPEN)
def test_a_capture_serves_all_sizes(name: str) -> None:
    made: list[Any] = []
    calls(OPEN[name], capture(lambda x: OPEN[name](x), "eager", on_translation=made.append))
    assert len(made) <= 3  # the first size, any, and one


@pytest.mark.parametrize("name", ANY)
def test_all_sizes_are_as_eager(name: str) -> None:
    calls(ANY[name], capture(lambda x: ANY[name](x), "eager"))
