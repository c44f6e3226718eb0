"""opmill beside torch's own compiler: each calls, compiles and exports what the other made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import opmill

dynamo = pytest.importorskip("torch._dynamo")


class Graphs:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        self.count += 1
        return gm.forward


@pytest.fixture(autouse=True)
def fresh() -> Any:
    dynamo.reset()
    yield
    dynamo.reset()


def double(x: torch.Tensor) -> torch.Tensor:
    return x.cos() * 2


def within(x: torch.Tensor) -> torch.Tensor:
    with dynamo.config.patch(recompile_limit=3):
        return x.sin() + 1


@dynamo.config.patch("recompile_limit", 3)
def decorated(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def made_by_torch() -> dict[str, Callable[..., Any]]:
    function, module = torch.compile(double, backend="eager"), torch.compile(nn.Linear(3, 3), backend="eager")
    return {
        "calls a function": lambda x: function(x) + 1,
        "calls a module": lambda x: module(x) + 1,
        "is a function": function,
        "is a module": module,
        "patches settings": within,
        "is decorated": decorated,
        "calls what is decorated": lambda x: decorated(x) * 2,
    }


@pytest.mark.parametrize("name", made_by_torch())
def test_what_torch_compiled_is_one_graph(name: str) -> None:
    program, backend, x = made_by_torch()[name], Graphs(), torch.randn(2, 3)
    compiled = opmill.compile(program, backend=backend, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), program(x))
    assert backend.count == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compiles_around_what_opmill_compiled(dynamic: bool) -> None:
    backend, x = Graphs(), torch.randn(2, 3)
    inner = opmill.compile(double, backend=backend)
    outer = torch.compile(lambda x: inner(x + 1) - 1, backend="eager", dynamic=dynamic, fullgraph=True)
    for size in (2, 2, 5):
        x = torch.randn(size, 3)
        torch.testing.assert_close(outer(x), double(x + 1) - 1)
    assert not backend.count  # it is read as what it was made of
    torch.testing.assert_close(inner.__call__(x), double(x))
    assert backend.count == 1


def test_export_of_a_model_that_calls_compiled_functions_and_methods() -> None:
    inner, x = opmill.compile(double, backend="eager"), torch.randn(2, 3)

    class Calling(nn.Module):
        @opmill.compile(backend="eager")
        def scaled(self, x: torch.Tensor | None = None, by: int = 3) -> torch.Tensor | int:
            return self.most * by if x is None else x * by

        most = 5

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return inner(x) + self.scaled(x, by=4) + self.scaled() + type(self).scaled(self, x)

    model = Calling()
    want = double(x) + x * 4 + 15 + x * 3
    torch.testing.assert_close(model(x), want)
    torch.testing.assert_close(torch.export.export(model, (x,), strict=True).module()(x), want)
    torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(x), want)


class Around(nn.Module):
    """A module that has one that was compiled, and state of its own."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x + 1) * self.scale


def test_torch_compiles_around_a_module_that_opmill_compiled() -> None:
    torch.manual_seed(0)
    plain, backend = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.ReLU()).eval(), Graphs()
    inner, outside = opmill.compile(plain, backend=backend), Graphs()
    for program, expected in (
        (lambda x: inner(x) - 1, lambda x: plain(x) - 1),
        (Around(inner), Around(plain)),
    ):
        outer = torch.compile(program, backend=outside, fullgraph=True)
        for size in (2, 2, 5):
            x = torch.randn(size, 3)
            torch.testing.assert_close(outer(x), expected(x))
    assert outside.count and not backend.count
    torch.testing.assert_close(inner(x), plain(x))
    torch.testing.assert_close(inner.__call__(x), plain(x))
    torch.testing.assert_close(type(inner).__call__(inner, x), plain(x))
    assert backend.count == 1


@pytest.mark.parametrize("module", [nn.Sequential(nn.Linear(3, 3), nn.ReLU()), Around(nn.Linear(3, 3))], ids=["of torch", "of the program"])
def test_torch_compiles_a_module_that_opmill_compiled(module: nn.Module) -> None:
    compiled, x = opmill.compile(module, backend="eager"), torch.randn(2, 3)
    torch.testing.assert_close(torch.compile(compiled, backend="eager")(x), module(x))
    torch.testing.assert_close(torch.compile(compiled.forward, backend="eager", fullgraph=True)(x), module(x))
    torch.testing.assert_close(compiled.forward(x), module(x))
    assert len(opmill.explain(compiled.forward)(x).graphs) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_torch_exports_a_module_that_opmill_compiled(strict: bool) -> None:
    plain, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3)
    for module, expected in ((opmill.compile(plain), plain), (Around(opmill.compile(plain)), Around(plain))):
        exported = torch.export.export(module, (x,), strict=strict)
        torch.testing.assert_close(exported.module()(x), expected(x))
        assert {name.removeprefix("inner.") for name in exported.state_dict} - {"scale"} == {"0.weight", "0.bias"}
