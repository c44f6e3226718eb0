"""Floats and extremes of numbers that only data tell: one graph, values to the last bit of a double, and the exceptions of eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

Program = Callable[[torch.Tensor, torch.Tensor], Any]


def chosen(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x[y == 1]


def many(y: torch.Tensor) -> Any:
    return (y == 1).sum().item()


WHOLE: dict[str, Program] = {
    "float of a count": lambda x, y: x.sum() / float((y.size(0) - (y == 1).sum()).item()),
    "a product with a float": lambda x, y: (x * float(many(y)), float(many(y)) * x),
    "a reciprocal": lambda x, y: x * (1.0 / (many(y) + 1)),
    "half of a count": lambda x, y: x * (many(y) / 2) - many(y) / 3,
    "a share": lambda x, y: x * (chosen(x, y).numel() / x.shape[0]),
    "a share the other way round": lambda x, y: x - x.shape[0] / (chosen(x, y).numel() + 1),
    "a root by **": lambda x, y: chosen(x, y).sum() * chosen(x, y).numel() ** 0.5,
    "a root": lambda x, y: x / (1 + math.sqrt(chosen(x, y).numel())),
    "a chain": lambda x, y: x * ((many(y) * 0.1 + 0.7) / 7 - 1.5),
    "added in place": lambda x, y: x.clone().add_(many(y) / 7),
    "a tensor of a float": lambda x, y: x + torch.tensor(many(y) / 7, dtype=torch.float64),
    "full of a float": lambda x, y: torch.full((3,), many(y) / 7, dtype=torch.float64),
    "lists of floats": lambda x, y: torch.tensor([many(y) / 7, 1.0], dtype=torch.float64),
    "an interpolation": lambda x, y: torch.lerp(x, x + 1, many(y) / 7),
    "at least one": lambda x, y: x.sum() / max(many(y), 1),
    "one at least": lambda x, y: x.sum() / max(1, many(y)) + max(many(y), 2, many(y) + 1),
    "three at most": lambda x, y: x * min(many(y), 3),
    "a slice of at least one": lambda x, y: x[: max(chosen(x, y).numel() // 2, 1)],
    "at most three of them": lambda x, y: chosen(x, y).topk(min(3, chosen(x, y).numel())).values,
    "the larger count": lambda x, y: torch.zeros(max(many(y), (y == 2).sum().item())) + max(many(y), 1) / 7,
    "a float of the largest": lambda x, y: x * (x.numel() / max(many(y), 1)),
    "half of a size": lambda x, y: chosen(x, y)[: int(chosen(x, y).shape[0] * 0.5)],
}
DIVIDING: dict[str, Program] = {
    "an integer": lambda x, y: x * (1 / many(y)),
    "a float": lambda x, y: x * (1.0 / float(many(y))),
    "a float of more": lambda x, y: x * (1.0 / (many(y) / 2)),
    "a size": lambda x, y: x + 1 / chosen(x, y).shape[0],
    "a product of none": lambda x, y: x + 0.0 / (chosen(x, y).shape[0] * 0.5),
}


def unused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    share = 1 / many(y)
    del share
    return x + 1


def unused_float(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    share = 1.0 / float(many(y))
    del share
    return x + 1


def caught(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    try:
        return x * (1 / many(y))
    except ZeroDivisionError:
        return x


DIVIDING |= {"unused": unused, "an unused float": unused_float}


def data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    y = torch.randint(0, 3, (7,))
    y[:2] = torch.tensor([1, 2])
    return torch.randn(7, dtype=torch.float64), y


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", WHOLE)
def test_they_are_part_of_one_graph(name):
    program = WHOLE[name]
    translations: list[Any] = []
    compiled = capture(program, "eager", fullgraph=True, on_translation=translations.append)
    for seed in range(6):
        same(compiled(*data(seed)), program(*data(seed)))
    assert len(translations) == 1


@pytest.mark.parametrize("name", DIVIDING)
def test_division_by_zero_raises_when_the_graph_runs(name):
    program = DIVIDING[name]
    compiled = capture(program, "eager", fullgraph=True)
    x, y = data(0)
    for none in (False, True, False):
        given = torch.zeros_like(y) if none else y
        if none:
            with pytest.raises(ZeroDivisionError) as wanted:
                program(x, given)
            with pytest.raises(ZeroDivisionError) as found:
                compiled(x, given)
            assert str(found.value) == str(wanted.value)
        else:
            same(compiled(x, given), program(x, given))


def test_a_division_whose_error_is_caught_ends_the_graph():
    compiled = capture(caught, "eager")
    x, y = data(0)
    for given in (y, torch.zeros_like(y), y):
        same(compiled(x, given), caught(x, given))


def test_the_larger_of_a_number_and_a_truth_may_be_the_truth():
    def program(x, y):
        return max(many(y), True), x + 1

    compiled = capture(program, "eager")
    x, y = data(0)
    for given in (y, torch.zeros_like(y)):
        found, wanted = compiled(x, given)[0], program(x, given)[0]
        assert found == wanted and type(found) is type(wanted)
