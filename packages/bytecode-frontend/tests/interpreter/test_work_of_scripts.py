"""Work that ``torch.jit.fork`` starts in a thread of its own runs between graphs: there are no tensors without data in such a thread."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


def work(x: torch.Tensor, factor: int) -> torch.Tensor:
    return torch.sin(x) * factor


SCRIPTED: Any = torch.jit.script(work)


@torch.jit.script
def picked(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return x[places] * places.sum()


@torch.jit.script
def spread(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(int(places.max()) + 1, dtype=x.dtype)
    return made.index_add(0, places, x) * int(places[0])


def forked(x: torch.Tensor) -> torch.Tensor:
    return torch.jit.wait(torch.jit.fork(SCRIPTED, x * 2, 3)) + 1  # type: ignore[no-any-return]


def many(x: torch.Tensor) -> torch.Tensor:
    futures = [torch.jit.fork(SCRIPTED, x * 2, i) for i in range(3)]
    return torch.stack([torch.jit.wait(each) for each in futures]).sum(0) + 1


def by_data(x: torch.Tensor) -> torch.Tensor:
    futures = [torch.jit.fork(picked, x, torch.tensor([i, 1])) for i in range(2)]
    return torch.cat([torch.jit.wait(each) for each in futures])


def by_numbers(x: torch.Tensor) -> torch.Tensor:
    futures = [torch.jit.fork(spread, x, torch.tensor([3, 1, 5, 1])) for _ in range(20)]
    return torch.cat([torch.jit.wait(each) for each in futures])


def of_python(x: torch.Tensor) -> torch.Tensor:
    return torch.jit.wait(torch.jit.fork(work, x, 3)) + 1  # type: ignore[no-any-return]


def with_a_list(x: torch.Tensor) -> torch.Tensor:
    return torch.jit.wait(torch._C.fork(SUMMED, [x, x * 2])) + x  # type: ignore[no-any-return]


@torch.jit.script
def SUMMED(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(parts).sum(0)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", [forked, many, by_data, by_numbers, of_python, with_a_list])
def test_work_runs_on_tensors_with_data(function: Any, grad: bool) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, _: object) -> Any:
        graphs.append(gm)
        return gm.forward

    told: list[str] = []
    captured = capture(function, backend, on_break=lambda reason: told.append(str(reason)))
    x = torch.arange(4.0, requires_grad=grad)
    for _ in range(2):
        found, expected = captured(x), function(x)
        assert torch.equal(found, expected) and found.requires_grad is grad
        if grad:
            assert torch.equal(*[torch.autograd.grad(each.sum(), x)[0] for each in (found, expected)])
    assert not [node for gm in graphs for node in gm.graph.nodes if getattr(node.target, "__name__", "") in ("fork", "wait")]
    assert function is of_python or any("call of torch._C.fork on a tensor" in each for each in told)
