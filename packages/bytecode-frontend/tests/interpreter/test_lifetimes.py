"""What was captured goes when the program lets go of it: functions, what they close over, modules and their parameters."""

from __future__ import annotations

import gc
import weakref
from typing import Any, Callable

import pytest
import torch

from opmill_bytecode_frontend import capture


def plain(x: torch.Tensor) -> Any:
    return x + 1


def views(x: torch.Tensor) -> Any:
    return x[:, 1:].t() * x.shape[0], x.view(-1)


def broken(x: torch.Tensor) -> Any:
    y = x * 2
    gc.isenabled()
    if y.sum() > 0:
        return y.cos()
    return y.sin()


def decided(x: torch.Tensor) -> Any:
    return x[x > 0] if x.shape[0] < 100 else x


def suspended(x: torch.Tensor) -> Any:
    return next(x[i] * x.shape[0] for i in range(1, 3))


@pytest.mark.parametrize("program", [plain, views, broken, decided, suspended])
@pytest.mark.parametrize("sizes", [(3,), (3, 4, 5)], ids=["fixed", "moving"])
def test_a_captured_function_goes_with_what_it_holds(program: Callable[..., Any], sizes: tuple[int, ...]) -> None:
    def make() -> list[weakref.ref[Any]]:
        module = torch.nn.Linear(4, 4)

        def function(x: torch.Tensor) -> Any:
            return program(module(x))

        captured = capture(function, "eager")
        for size in sizes:
            captured(torch.ones(size, 4))
        return [weakref.ref(each) for each in (captured, function, module, module.weight)]

    made = make()
    gc.collect()
    assert [each() for each in made] == [None] * len(made)


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("program", [plain, views, broken, suspended, lambda x: x.sin() * x.shape[0], lambda x, n=3: x[:n] * n])
def test_an_input_goes_with_the_call(program: Callable[..., Any], dynamic: bool | None) -> None:
    graphs = []

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm

    captured = capture(program, backend, dynamic=dynamic)
    gc.collect()
    gc.disable()
    try:
        x = torch.ones(4, 4)
        held = weakref.ref(x)
        captured(x)
        del x
        assert held() is None
    finally:
        gc.enable()
