"""Modules of one make share what is compiled, and state that is bound anew is no reason to compile: counted, and compared with plain
calls."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import opmill

WIDTH = 6


class Counting:
    """A backend that counts its graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: Any, inputs: Any) -> Any:
        self.graphs += 1
        return gm.forward


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def test_blocks_are_compiled_once() -> None:
    counting, x = Counting(), torch.randn(3, WIDTH)
    blocks = [Block() for _ in range(24)]
    for block in blocks:
        compiled = opmill.compile(block, backend=counting)
        torch.testing.assert_close(compiled(x), block(x))
    assert counting.graphs == 1
    other = opmill.compile(blocks[0], backend=counting, dynamic=True)
    torch.testing.assert_close(other(x), blocks[0](x))
    assert counting.graphs == 2, "with other arguments it is another thing"


def test_blocks_of_another_shape_do_not_count_against_each_other() -> None:
    counting, compiled = Counting(), []
    for width in range(2, 14):
        module = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        compiled.append(opmill.compile(module, backend=counting))
        x = torch.randn(3, width)
        torch.testing.assert_close(compiled[-1](x), module(x))
    assert counting.graphs == 12


@pytest.mark.parametrize("backend", ["opmill", Counting])
def test_a_hundred_modules_as_arguments(backend: Any) -> None:
    backend = backend if isinstance(backend, str) else backend()

    @opmill.compile(backend=backend)
    def apply(module: Any, x: torch.Tensor) -> torch.Tensor:
        return module(x) * 2

    x, gone = torch.randn(3, WIDTH), []
    for _ in range(100):
        block = Block()
        torch.testing.assert_close(apply(block, x), block(x) * 2)
        gone += [weakref.ref(block), weakref.ref(block.up.weight)]
        del block
    assert len(apply.entries) == 1
    gc.collect()
    assert not any(each() is not None for each in gone)


def test_a_method_compiled_in_the_class() -> None:
    counting = Counting()

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Block()

        @opmill.compile(backend=counting)
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) - 1

    x = torch.randn(3, WIDTH)
    for _ in range(12):
        layer = Layer()
        torch.testing.assert_close(layer(x), layer.inner(x) - 1)
    assert counting.graphs == 1


class Ema(nn.Module):
    """State of three kinds that each call binds anew."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.last = torch.zeros(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = self.mean * 0.9 + x.mean(0) * 0.1
        self.last = self.last * 0.5 + self.mean
        return self.linear(x) - self.mean + self.last


def assign(module: nn.Module) -> None:
    module.load_state_dict({k: v + 1 for k, v in module.state_dict().items()}, assign=True)


def new_parameter(module: nn.Module) -> None:
    module.linear.weight = nn.Parameter(torch.full((WIDTH, WIDTH), 0.5))


def new_data(module: nn.Module) -> None:
    module.linear.weight.data = torch.full((WIDTH, WIDTH), 0.25)


def in_place(module: nn.Module) -> None:
    with torch.no_grad():
        module.linear.weight.mul_(2)


def new_child(module: nn.Module) -> None:
    module.linear = nn.Linear(WIDTH, WIDTH)
    nn.init.ones_(module.linear.weight)
    nn.init.zeros_(module.linear.bias)


@pytest.mark.parametrize("backend", ["opmill", Counting])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("change", [None, assign, new_parameter, new_data, in_place, new_child])
def test_state_that_is_bound_anew(change: Callable[[Any], None] | None, training: bool, backend: Any) -> None:
    backend = backend if isinstance(backend, str) else backend()
    torch.manual_seed(0)
    plain = Ema()
    module = copy.deepcopy(plain)
    compiled = opmill.compile(module, backend=backend)
    with torch.set_grad_enabled(training):
        for step in range(6):
            x = torch.randn(3, WIDTH)
            if change is not None and step % 2:
                change(plain)
                change(module)
            want, got = plain(x), compiled(x)
            torch.testing.assert_close(got, want)
            if training:
                for each, model in ((want, plain), (got, module)):
                    model.zero_grad()
                    each.sum().backward()
                torch.testing.assert_close([p.grad for p in module.parameters()], [p.grad for p in plain.parameters()])
            torch.testing.assert_close(module.state_dict(), plain.state_dict())
            torch.testing.assert_close(module.last, plain.last)
    dispatcher = object.__getattribute__(compiled, "__call__").__func__
    assert len(dispatcher.entries) == 1, "a tensor of the same kind is no reason to compile again"


def test_tied_and_untied_weights_are_two_structures() -> None:
    counting = Counting()

    def pair(tied: bool) -> Any:
        made = nn.ModuleList([nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2)])
        if tied:
            made[1].weight = made[0].weight
        return made

    @opmill.compile(backend=counting)
    def apply(pair: Any, x: torch.Tensor) -> torch.Tensor:
        return pair[1](pair[0](x)).sum()

    for tied in (True, False, True, False):
        plain = pair(tied)
        module, x = copy.deepcopy(plain), torch.randn(2, WIDTH)
        apply(module, x).backward()
        plain[1](plain[0](x)).sum().backward()
        torch.testing.assert_close([p.grad for p in module.parameters()], [p.grad for p in plain.parameters()])
    assert counting.graphs == 2


def test_a_copy_made_inside() -> None:
    counting = Counting()
    module = Block()

    @opmill.compile(backend=counting)
    def apply(x: torch.Tensor) -> torch.Tensor:
        return copy.deepcopy(module)(x)

    x = torch.randn(3, WIDTH)
    for _ in range(6):
        torch.testing.assert_close(apply(x), module(x))
    assert counting.graphs <= 2
