"""Operators of the program whose backward is Python that no graph can hold: the graph ends before them, and eager's gradients come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


def by_list(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    """Group by group, as the data of the offsets tell."""
    x, start, found = ctx.saved_tensors[0], 0, torch.zeros_like(grad)
    for k, end in enumerate(ctx.ends.tolist()):
        torch.mul(grad[start:end] * (k + 1), x[start:end].cos(), out=found[start:end])
        start = end
    return found, None


def by_branch(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return (grad * ctx.saved_tensors[0].cos() if ctx.ends.sum() > 4 else grad), None


def by_number(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return grad * int(ctx.ends[-1]) * ctx.saved_tensors[0].cos(), None


def by_operators(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return grad * ctx.saved_tensors[0].cos() * ctx.ends.sum(), None


BACKWARDS: dict[str, Callable[..., Any]] = {
    "by_list": by_list,
    "by_branch": by_branch,
    "by_number": by_number,
    "by_operators": by_operators,
}


def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.ends = inputs[1]


@pytest.fixture(scope="module")
def operators() -> Iterator[Any]:
    with torch.library._scoped_library("opaque", "FRAGMENT") as lib:
        for name, backward in BACKWARDS.items():
            lib.define(f"{name}(Tensor x, Tensor ends) -> Tensor")
            lib.impl(name, lambda x, ends: x.sin(), "CPU")
            torch.library.register_fake(f"opaque::{name}", lambda x, ends: torch.empty_like(x), lib=lib)
            torch.library.register_autograd(f"opaque::{name}", backward, setup_context=keep, lib=lib)
        yield torch.ops.opaque


def seen(function: Callable[..., Any], ends: list[int], differentiated: bool) -> list[torch.Tensor]:
    x = torch.linspace(0, 1, 4).requires_grad_(differentiated)
    loss = function(x, torch.tensor(ends))
    return [loss.detach(), *(torch.autograd.grad(loss, x) if differentiated else ())]


@pytest.mark.parametrize("name", BACKWARDS)
@pytest.mark.parametrize("differentiated", [True, False])
def test_gradients_are_eagers(operators: Any, name: str, differentiated: bool) -> None:
    def program(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        y = getattr(operators, name)((x * 2).exp(), ends)
        return (y.sigmoid() * 3).sum()

    breaks: list[Any] = []
    compiled = capture(program, "eager", on_break=breaks.append)
    for ends in ([1, 2], [2, 4]):
        torch.testing.assert_close(seen(compiled, ends, differentiated), seen(program, ends, differentiated))
    assert [each.code for each in breaks] == (["FE045"] if differentiated and name != "by_operators" else [])


def test_an_operator_that_python_defines() -> None:
    @torch.library.custom_op("opaque_of_python::sine", mutates_args=())
    def sine(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return x.sin()

    sine.register_fake(lambda x, ends: torch.empty_like(x))
    sine.register_autograd(by_list, setup_context=keep)

    def program(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return (sine((x * 2).exp(), ends).sigmoid() * 3).sum()

    breaks: list[Any] = []
    compiled = capture(program, "eager", on_break=breaks.append)
    for ends in ([1, 4], [2, 4]):
        torch.testing.assert_close(seen(compiled, ends, True), seen(program, ends, True))
    assert breaks[0].code == "FE045"


def test_where_no_graph_may_end_the_backend_has_to_see(operators: Any) -> None:
    def program(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return operators.by_list(x * 2, ends).sum()

    compiled = capture(program, "eager", fullgraph=True)
    torch.testing.assert_close(seen(compiled, [1, 4], True), seen(program, [1, 4], True))
