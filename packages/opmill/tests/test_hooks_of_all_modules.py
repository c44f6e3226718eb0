"""Hooks that a program registers for all modules hear of its own modules: graphs of captured code are none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn.modules import module as modules
from torch.utils.checkpoint import checkpoint

import opmill

torch.manual_seed(0)
LAYER = torch.nn.Linear(3, 3)


def plain(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * x


def layered(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(LAYER(x))


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(layered, x, use_reentrant=False) * checkpoint(plain, x, use_reentrant=False)  # type: ignore[no-any-return]


def broken(x: torch.Tensor) -> torch.Tensor:
    y = torch.cos(x)
    print(end="")
    return checkpoint(plain, y, use_reentrant=False)  # type: ignore[no-any-return]


def conditional(x: torch.Tensor) -> torch.Tensor:
    return torch.utils.checkpoint.checkpoint(torch.exp, x, use_reentrant=False) if x.shape[0] > 1 else x


def once(function: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(function(x).sum(), x)[0]


def twice(function: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    first = torch.autograd.grad(function(x).sum(), x, create_graph=True)[0]
    return torch.autograd.grad(first.square().sum(), x)[0]


def without(function: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return function(x)


@pytest.fixture
def heard() -> Iterator[set[str]]:
    """Classes of the modules that hooks heard of."""
    found: set[str] = set()
    hooks: list[Any] = [
        modules.register_module_forward_pre_hook(lambda module, _: found.add(type(module).__name__)),
        modules.register_module_forward_hook(lambda module, *_: found.add(type(module).__name__)),
        modules.register_module_full_backward_hook(lambda module, *_: found.add(type(module).__name__)),
    ]
    yield found
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("backend", ["opmill", "eager"])
@pytest.mark.parametrize("way", [once, twice, without])
@pytest.mark.parametrize("function", [plain, layered, checkpointed, broken, conditional])
def test_hooks_hear_of_modules_of_the_program_alone(function: Any, way: Any, backend: str, heard: set[str]) -> None:
    x = torch.randn(2, 3, requires_grad=True)
    expected, told = way(function, x), set(heard)
    heard.clear()
    torch.testing.assert_close(way(opmill.compile(function, backend=backend), x), expected)
    assert heard == told


@pytest.mark.parametrize("way", [once, twice])
@pytest.mark.parametrize("function", [plain, layered, checkpointed])
def test_a_call_of_modules_that_a_program_replaced_is_not_one_of_graphs(function: Any, way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 3, requires_grad=True)
    expected, real, called = way(function, x), torch.nn.Module.__call__, set()

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        called.add(type(self).__name__)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(torch.nn.Module, "__call__", call)
    torch.testing.assert_close(way(opmill.compile(function), x), expected)
    assert called <= {"Linear"}
