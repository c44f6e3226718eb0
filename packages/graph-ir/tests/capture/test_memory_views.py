"""Views by strides of memory: their offsets are the storage's, whatever they are asked of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.options import GraphOptions


def module(fn: Callable[..., Any], count: int) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    graph.output(graph.call_function(fn, tuple(graph.placeholder(f"a{k}") for k in range(count))))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def reals() -> torch.Tensor:
    return torch.arange(24.0).reshape(4, 6)


def columns() -> torch.Tensor:
    return torch.arange(24.0).reshape(6, 4).t()


def complexes() -> torch.Tensor:
    return torch.complex(reals(), -reals())


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "of a slice, from the beginning": lambda y: y[1:].as_strided((2,), (1,), 0),
    "of a slice, from there": lambda y: y[1:].as_strided((2, 2), (1, 3)),
    "of a diagonal": lambda y: y.diagonal().as_strided((3, 2), (6, 1), 1),
    "of every second": lambda y: y[:, ::2].as_strided((2,), (5,), 1),
    "of a transposition": lambda y: y.t().as_strided((3, 3), (6, 2), 2),
    "of a view of a view": lambda y: y[1:].as_strided((6,), (2,), 1)[2:].as_strided((2,), (1,), 4),
    "of a window": lambda y: y.unfold(1, 2, 2)[1].as_strided((2, 2), (2, 1)),
    "whole": lambda y: y.as_strided((24,), (1,)),
    "nothing": lambda y: y[2:].as_strided((0, 3), (1, 1), 5),
    "one": lambda y: y[1].as_strided((), (), 7),
    "as integers": lambda y: y[1:].view(torch.int32).as_strided((2, 2), (3, 1), 1),
}


@pytest.mark.parametrize("make", [reals, columns, complexes], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", ["input", "inside"])
@pytest.mark.parametrize("name", VIEWS)
def test_reads_and_writes(name: str, kind: str, make: Callable[[], torch.Tensor]) -> None:
    if make is complexes and name == "as integers":
        pytest.skip("two integers each")

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x if kind == "input" else x.clone()
        y.mul_(2)
        before = VIEWS[name](y) + 1
        VIEWS[name](y).add_(1)
        return before, VIEWS[name](y), y

    theirs, ours, gm = make(), make(), module(fn, 1)
    with torch.no_grad():
        want, graph = gm(theirs), functionalize(gm, [ours])
        got = run_lowered(lower(graph), [ours, *graph.held_tensors])
    for a, b in zip([*got, ours], [*want, theirs], strict=True):
        assert torch.equal(a, b)
        assert a.stride() == b.stride() or not a.numel()
    shown = [(t.storage_offset(), t.untyped_storage().data_ptr() == r[-1].untyped_storage().data_ptr()) for r in (got, want) for t in r[1:]]
    assert shown[:2] == shown[2:]


@pytest.mark.parametrize("offset", [None, 1])
def test_scattered_and_copied(offset: int | None) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        part = (x * 2)[1:]
        where = offset if offset is None else offset + 6
        return torch.as_strided_scatter(part, y, (2, 2), (3, 1), where), torch.as_strided_copy(part, (2, 2), (3, 1), offset)

    gm, inputs = module(fn, 2), [reals(), torch.full((2, 2), -1.0)]
    with torch.no_grad():
        graph = functionalize(gm, inputs)
        for a, b in zip(run_lowered(lower(graph), inputs), gm(*inputs), strict=True):
            assert torch.equal(a, b)


def test_writes_to_elements_that_are_seen_twice_are_refused() -> None:
    with torch.no_grad(), pytest.raises(GraphError, match="GI003"):
        functionalize(module(lambda y: (y.as_strided((3, 2), (1, 1)).add_(1),), 1), [reals()])


def test_memory_that_the_tensor_does_not_cover_is_refused() -> None:
    with torch.no_grad(), pytest.raises(GraphError, match="GI003"):
        functionalize(module(lambda y: (y.as_strided((3,), (1,), 0) + 1,), 1), [reals()[1:]])


def test_inputs_that_begin_elsewhere_run_as_eager_runs_them() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.as_strided((2,), (1,), 1).mul_(3)
        return (x + 1,)

    gm = module(fn, 1)
    with torch.no_grad():
        compiled = compile_graph(gm, [torch.arange(4.0)])
        for start in (0, 2, 0, 1):
            ours, theirs = torch.arange(8.0), torch.arange(8.0)
            if start:
                with pytest.warns(UserWarning, match="GI032"):
                    [got] = compiled(ours[start : start + 4])
            else:
                [got] = compiled(ours[:4])
            [want] = gm(theirs[start : start + 4])
            assert torch.equal(got, want)
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("part", ["real", "imag"])
def test_elements_of_a_part_of_complex_numbers_written_before(part: str) -> None:
    """Parts lie in planes of their own after a write: views by another type of these have other strides than those of what was captured."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.mul_(2)
        words = getattr(x.t(), part).view(torch.int32)
        words[:, 1:] += 1
        return torch.zeros_like(words), words.clone()

    x, y = complexes(), complexes()
    graph = functionalize(module(fn, 1), [x])
    for got, wanted in zip(run_lowered(lower(graph), [x]), fn(y), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)
        assert got.stride() == wanted.stride()
    assert torch.equal(x, y)


WRITTEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a diagonal": lambda y: y.fill_diagonal_(0),
    "a diagonal of columns": lambda y: y.t().fill_diagonal_(2),
    "a diagonal that begins again": lambda y: y.reshape(8, 3).fill_diagonal_(0, wrap=True),
    "a diagonal of some rows": lambda y: y[1:].fill_diagonal_(0),
    "a diagonal twice": lambda y: y.fill_diagonal_(0).mul_(3).fill_diagonal_(1),
    "a band": lambda y: y.as_strided((3, 2), (7, 1), 1).add_(y[3:, :2]),
    "all": lambda y: y.as_strided((24,), (1,)).mul_(3),
    "and read before and after": lambda y: y.as_strided((4,), (5,)).mul_(3).add_(y.as_strided((4,), (5,), 1) * 2),
}
BEYOND: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a diagonal": lambda y: y.diagonal().as_strided((3,), (1,), 1),
    "every second": lambda y: y[:, ::2].as_strided((2,), (3,), 1),
    "rows from another on": lambda y: y[2:].as_strided((2,), (1,), 0),
}


def differentiated(write: Callable[[torch.Tensor], object], compiled: bool) -> list[torch.Tensor]:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * x
        before = y[1:, 2:]
        write(y)
        return y * 2 + x, before.sin()

    x = reals().requires_grad_()
    gm = module(fn, 1)
    call = compile_graph(gm, [x], options=GraphOptions(verify=True, cache=False)) if compiled else gm
    first, second = call(x)
    weights = torch.linspace(-1, 2, 24).reshape(first.shape)
    ((first * weights).sum() + second.square().sum()).backward()
    assert x.grad is not None
    return [first, second, x.grad]


@pytest.mark.parametrize("name", WRITTEN)
def test_writes_are_differentiated(name: str) -> None:
    for ours, theirs in zip(differentiated(WRITTEN[name], True), differentiated(WRITTEN[name], False), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", BEYOND)
def test_gradients_of_what_a_tensor_does_not_show_are_refused(name: str) -> None:
    def write(y: torch.Tensor) -> None:
        shown = BEYOND[name](y)
        y.mul_(2)
        shown.add_(1)

    with pytest.raises(GraphError, match="GI003"):
        differentiated(write, True)
