"""Decisions on small tensors of modules: assumed, seen to change, and left to the data where they change again."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from opmill_bytecode_frontend import capture


class Graphs:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        self.count += 1
        return gm.forward


class Padded(nn.Module):
    """Strides and lengths kept as buffers, as audio models keep them."""

    def __init__(self) -> None:
        super().__init__()
        self.stride = nn.Buffer(torch.tensor(2), persistent=False)
        self.total = nn.Buffer(torch.tensor(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = torch.ceil((x.shape[-1] - self.total) / self.stride + 1).to(torch.int64) - 1
        extra = frames * self.stride + self.total - x.shape[-1]
        return nn.functional.pad(x, (self.total, extra)) if extra > 0 else x * self.stride


class Started(nn.Module):
    """Does something at its first call, as layers do that take their scale from the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("started", torch.tensor(0, dtype=torch.uint8))
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.started.item() == 0:
            self.scale.copy_(x.abs().amax(0))
            self.started.fill_(1)
        return x / self.scale


class Switches(nn.Module):
    """Flags in a list of numbers, as fake quantisation keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("enabled", torch.tensor([1, 0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.enabled[0] == 1:
            x = x.round()
        if self.enabled[1] == 1:
            x = x + 1
        return x * sum(self.enabled.tolist())


class Shared(nn.Module):
    """A flag that is part of a larger buffer, which is written before it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(40))
        self.register_buffer("flag", self.state[3])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.add_(x.sum())
        return x + 1 if self.flag > 0 else x - 1


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2 if self.step % 2 == 0 else x * 3
        self.step += 1
        return y


def run(module: nn.Module, change: Any = None, calls: int = 6) -> list[int]:
    """How many graphs there are after each call, all of them as in eager; ``change(module, k)`` comes before call ``k``."""
    plain, backend = copy.deepcopy(module), Graphs()
    compiled, found = capture(type(module).forward, backend), []
    for k in range(calls):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(k))
        with torch.no_grad():
            for each in (module, plain):
                if change is not None:
                    change(each, k)
        torch.testing.assert_close(compiled(module, x.clone()), plain(x.clone()), rtol=0, atol=0)
        for mine, theirs in zip(module.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
        found.append(backend.count)
    return found


@pytest.mark.parametrize(
    ("module", "graphs"),
    [(Padded, [1] * 6), (Switches, [1] * 6), (Started, [1, 2, 2, 2, 2, 2])],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_a_buffer_decides_is_no_break(module: Any, graphs: list[int]) -> None:
    assert run(module()) == graphs


def test_a_buffer_that_is_written_between_calls_is_seen() -> None:
    assert run(Padded(), lambda module, k: module.stride.fill_(3) if k == 3 else None) == [1, 1, 1, 2, 2, 2]
    assert run(Switches(), lambda module, k: module.enabled.copy_(torch.tensor([k % 2, 1])) if k < 4 else None)[-1] <= 8


def test_a_flag_in_memory_that_the_graph_writes_is_not_assumed() -> None:
    run(Shared())


def test_a_buffer_that_changes_at_each_call_ends_in_a_break_that_stays() -> None:
    found = run(Counting(), calls=12)
    assert found[-1] == found[-4] <= 8


def test_an_argument_decides_by_its_data() -> None:
    backend = Graphs()
    compiled = capture(lambda x, flag: x + 1 if flag > 0 else x - 1, backend)
    x = torch.randn(3)
    for k in range(4):
        torch.testing.assert_close(compiled(x, torch.tensor(k % 2)), x + 1 if k % 2 else x - 1)


class Signed(torch.nn.Module):
    def __init__(self, flag):
        super().__init__()
        self.register_buffer("flag", flag)

    def forward(self, x):
        return x * math.copysign(2.0, self.flag.reshape(-1)[0].item())


@pytest.mark.parametrize("flag", [torch.tensor(0.0), torch.tensor([[3.0, 0.0], [4.0, 0.0]])[:, 1], torch.zeros(2, dtype=torch.bfloat16)])
def test_zeros_have_signs_and_nan_is_nan(flag):
    module, x = Signed(flag.clone()), torch.ones(2)
    module.flag = flag  # with its strides
    compiled = capture(lambda x: module(x), "eager")
    for value in (0.0, -0.0, float("nan"), float("nan"), 0.0):
        module.flag.fill_(value)
        assert torch.equal(compiled(x), module(x))


def counted(p):
    m = torch.zeros(3, 3, dtype=torch.long)
    for a in p.tolist():
        m[a, a] += 1
    return m, m.sum().item()


def first_rows(p):
    m = torch.zeros(4)
    m[: p[0].item()] = 1
    return m.tolist()


def parts(p):
    m = torch.zeros(2, 3)
    a, _ = m.unbind(0)
    a += 1
    return m.sum().item(), bool(m.any())


def narrowed(p):
    m = torch.ones(4)
    m.narrow(0, 0, p[1].item()).mul_(0)
    return [v for v in m.tolist() if v], m.sum().item()


def decided(p):
    m = torch.zeros(3)
    for row in m.unbind():
        row.add_(p[0].item())
    return 1 if m.sum() > 2 else 0


def placed(p):
    m = torch.arange(4.0)
    m[p[0]] = 9
    m.t()[-p[0].item() :] += 2
    return m.tolist(), m.max().item()


@pytest.mark.parametrize("function", [counted, first_rows, parts, narrowed, decided, placed])
def test_writes_at_places_that_data_choose(function):
    """The tensor was made of numbers and is known; what is written to it through a view that is not, is read behind it."""
    compiled = capture(function, "eager")
    for numbers in ([1, 2, 1], [2, 1, 0], [1, 1, 1]):
        want, got = function(torch.tensor(numbers)), compiled(torch.tensor(numbers))
        assert str(want) == str(got)
