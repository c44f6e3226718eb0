"""Numbers that are known to be others at the next call are not assumed at the first one: captures are counted, and results are eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from alike import near, same

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.breaks.changing import changing
from opmill_bytecode_frontend.values.constant import ConstantValue

SMALL = (0, 1, 2, 3, 5, 1, 0)
NUMBERS: dict[str, tuple[int, Callable[[torch.Tensor, int], object]]] = {
    "a factor": (2, lambda x, n: x * n + 1),
    "an end": (4, lambda x, n: x[:n] * 2),
    "an item": (2, lambda x, n: x[n % 3]),
    "a new size": (3, lambda x, n: torch.zeros(n) + x[0, 0]),
    "a size that may be repeated": (4, lambda x, n: torch.zeros(n, 4) + x[0]),
    "an extent": (3, lambda x, n: torch.arange(n) * 2),
    "a decision": (3, lambda x, n: x + n if n > 1 else x - n),
    "quotients": (3, lambda x, n: (n // 2, n % 3, -n, n / 2, x * (n // 2))),
    "a result": (2, lambda x, n: (x * 2, n)),
}


def running(xs: list[torch.Tensor]) -> tuple[float, list[float]]:
    mean, seen = 0.0, []
    for x in xs:
        value = x.sum().item()
        mean = 0.9 * mean + 0.1 * value
        if value > 1e9:
            seen.append(value)
    return mean, seen


def stepping(xs: list[torch.Tensor]) -> torch.Tensor:
    out = torch.zeros(3)
    for k, x in enumerate(xs):
        if x.sum() > -1e9:
            out = out + k * x
    return out


def acting(xs: list[torch.Tensor]) -> list[torch.Tensor]:
    found = []
    for x in xs:
        at = x.argmax().item()
        if x.sum() > -1e9:
            found.append(x * at + at)
    return found


def paired(xs: list[torch.Tensor]) -> object:
    last = (0.0, 0.0)
    for x in xs:
        both = x.max().item(), x.min().item()
        if x.sum() > -1e9:
            last = (both[0] - both[1], both[0] + both[1])
    return last


def sampling(xs: list[torch.Tensor]) -> list[int]:
    tokens = [1]
    while len(tokens) < 6:
        tokens.append((xs[0] * tokens[-1]).argmax().item())
        if xs[0].sum() > 1e9:
            break
    return tokens


def collecting(xs: list[torch.Tensor]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for x in xs:
        found.append((x.max().item(), x.min().item()))
        if x.sum() > 1e9:
            return found[:1]
    return found[-1:]


LOOPS: dict[str, tuple[int, Callable[[list[torch.Tensor]], object]]] = {
    "floats that only data tell": (5, running),
    "the number of a turn": (6, stepping),
    "ints that only data tell": (4, acting),
    "pairs of them": (6, paired),
    "a list that is appended to until it is long": (5, sampling),
    "a list of pairs": (5, collecting),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_may_be_nought_and_one(name: str) -> None:
    most, function = NUMBERS[name]
    made: list[Any] = []
    compiled = capture(lambda x, n: function(x, n), "eager", on_translation=made.append)
    for n in SMALL:
        x = torch.randn(3, 4)
        assert same(outcome(compiled, x, n), outcome(function, x, n), near()), n
    assert len(made) <= most


def test_axes_that_are_numbers_are_those_of_the_call() -> None:
    compiled = capture(lambda x, n: x.sum(n), "eager")
    x = torch.randn(3, 4)
    for n in (0, 1, 0, 1, -1, -2, 1):
        torch.testing.assert_close(compiled(x, n), x.sum(n))


@pytest.mark.parametrize("name", LOOPS)
def test_what_graphs_hand_on_is_not_assumed(name: str) -> None:
    most, function = LOOPS[name]
    made: list[Any] = []
    compiled = capture(lambda xs: function(xs), "eager", on_translation=made.append)
    for turn in range(3):
        xs = [torch.randn(3, generator=torch.Generator().manual_seed(10 * turn + k)) for k in range(6)]
        assert same(compiled(copy.deepcopy(xs)), function(xs), near())
    assert len(made) <= most


def test_what_python_knows_does_not_change() -> None:
    found = changing({"mode": ConstantValue(3), "measured": "_v0"})
    assert not found.ints
    assert [str(source) for source in found.floats] == ["measured"]


def outcome(function: Callable[..., object], *args: object) -> object:
    try:
        return function(*args)
    except Exception as exc:
        return type(exc).__name__, str(exc)
