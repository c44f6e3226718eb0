"""Operators of two masked tensors are whole where their masks are alike, which the graph checks."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.masked import MaskedTensor, masked_tensor
from torch.masked.maskedtensor import binary

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.graph.masked import compares

MASK = torch.tensor([[True, False, True], [False, True, True]])
NAMES = [name for name in binary.BINARY_NAMES if hasattr(torch, name)]
WRITTEN = {
    "mul twice": lambda x, y: (x * y) * x,
    "in place": lambda x, y: (x * 2).add_(y).sub_(x),
    "augmented": lambda x, y: operator.imul(x + 1, y),
    "by a name of tensors": lambda x, y: torch.Tensor.mul(x, y).div(y),
    "compared by the class": lambda x, y: x < y,
    "of itself": lambda x, y: x * x,
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def masked(times: int, mask: torch.Tensor = MASK, whole: bool = False) -> Any:
    data = torch.arange(1, 7).view(2, 3) * times % 5 + 1
    return masked_tensor(data if whole else data.double(), mask)


def outcome(run: Callable[..., Any], *given: Any) -> list[Any]:
    """The text of a result, or the error."""
    try:
        result = run(*given)
    except Exception as error:
        return [type(error), str(error)]
    return [type(result), result.get_mask().tolist(), torch.where(result.get_mask(), result.get_data(), 0).tolist()]


def graphs_of(program: Callable[..., Any], *calls: tuple[Any, ...], whole: bool = False) -> int:
    """How many graphs were captured, one for a function where it has to be ``whole``; what each call gives is what it gives in eager."""
    translations: list[Any] = []
    compiled = capture(program, "eager", fullgraph=whole, on_translation=translations.append)
    for given in calls:
        assert outcome(compiled, *given) == outcome(program, *given)
    return len(translations)


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_that_compares_masks_is_whole(name: str) -> None:
    function = getattr(torch, name)
    whole = "bitwise" in name or "shift" in name
    pair = masked(1, whole=whole), masked(2, whole=whole)
    assert compares(function)
    assert graphs_of(lambda x, y: function(x, y), pair, (pair[1], pair[0]), whole=True) == 1
    assert graphs_of(lambda x, y: function(x, y), pair, (pair[0], masked(2, ~MASK, whole))) == 1


@pytest.mark.parametrize("name", WRITTEN)
def test_however_it_is_written(name: str) -> None:
    assert graphs_of(WRITTEN[name], (masked(1), masked(2)), (masked(3), masked(4)), whole=True) == 1


@pytest.mark.parametrize("name", WRITTEN)
def test_masks_that_differ_are_refused_as_in_eager(name: str) -> None:
    """Also where the call that was captured had masks that were alike."""
    calls = (masked(1), masked(2)), (masked(1), masked(2, ~MASK))
    assert graphs_of(WRITTEN[name], *calls) == 1
    graphs_of(WRITTEN[name], *reversed(calls))


def test_what_catches_the_refusal_gets_it() -> None:
    def program(x: Any, y: Any) -> Any:
        try:
            return x * y
        except ValueError:
            return x

    graphs_of(program, (masked(1), masked(2)), (masked(1), masked(2, ~MASK)))


def test_names_are_those_of_torch() -> None:
    in_place = [name for name in binary.INPLACE_BINARY_NAMES if hasattr(torch.Tensor, name)]
    assert in_place and all(compares(getattr(torch.Tensor, name)) and compares(name) for name in in_place)
    assert not any(map(compares, (torch.cat, torch.sum, torch.where, torch.Tensor.__lt__, operator.lt, operator.getitem, "sum")))


def test_one_masked_tensor_compares_nothing() -> None:
    assert type(masked(1)) is MaskedTensor
    assert graphs_of(lambda x, y: x * y.get_data() + 1, (masked(1), masked(2)), (masked(1), masked(2, ~MASK))) == 1
