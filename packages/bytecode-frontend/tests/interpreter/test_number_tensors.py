"""Tensors that are made of numbers which are not known while a graph is made: whole, and eager's to the last bit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from alike import same

from opmill_bytecode_frontend import capture

LEAVES: dict[str, Callable[[torch.Tensor], Any]] = {
    "a float of data": lambda x: x.sum().item(),
    "an int of data": lambda x: x.argmax().item(),
    "a truth of data": lambda x: (x > 0.5).any().item(),
    "a float": lambda x: 0.1,
    "an int": lambda x: 3,
    "a truth": lambda x: True,
    "a size": lambda x: x.shape[0],
}
DTYPES = (None, torch.float32, torch.float64, torch.int64, torch.bool, torch.float16, torch.int8)
SHAPES: dict[str, Callable[[Any, Any], Any]] = {
    "one": lambda a, b: a,
    "a list": lambda a, b: [a, b],
    "a tuple in a list": lambda a, b: [(a, b, a), (b, b, a)],
    "one in lists": lambda a, b: [[[a]]],
}
MAKERS = {"tensor": torch.tensor, "as_tensor": torch.as_tensor}


def numbers() -> list[torch.Tensor]:
    return [torch.tensor(values) for values in ([0.1, 0.7, 1e-9], [1e30, -2.0, 3.5], [0.0, -0.0, 0.0])]


def alike(function: Callable[..., object], calls: list[tuple[Any, ...]]) -> list[Any]:
    """The breaks of a function that gives what it gives plainly."""
    breaks: list[Any] = []
    compiled = capture(lambda *args: function(*args), "eager", on_break=breaks.append)
    for args in calls:
        assert same(outcome(compiled, *args), outcome(function, *args)), args
    return breaks


def outcome(function: Callable[..., object], *args: object) -> object:
    try:
        return function(*args)
    except Exception as exc:
        return type(exc).__name__, str(exc)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("maker", MAKERS)
def test_tensors_of_numbers_of_data(maker: str, shape: str) -> None:
    made, arranged = MAKERS[maker], SHAPES[shape]
    for first, second in itertools.combinations_with_replacement(LEAVES.values(), 2):
        breaks = alike(lambda x, a=first, b=second: made(arranged(a(x), b(x))) * 1, [(x,) for x in numbers()])
        assert not breaks, [str(each) for each in breaks]


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_that_hold_any_number_are_made_in_the_graph(dtype: torch.dtype | None) -> None:
    for leaf in LEAVES.values():
        alike(lambda x, a=leaf: torch.tensor([a(x), 1], dtype=dtype), [(x,) for x in numbers()])


def test_a_default_type_is_that_of_the_call() -> None:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert not alike(lambda x: torch.tensor([x.sum().item(), 1]), [(x,) for x in numbers()])
    finally:
        torch.set_default_dtype(before)


def test_floats_that_change_are_put_into_tensors() -> None:
    calls = [(torch.ones(2), 0.1 * k) for k in range(12)] + [(torch.ones(2), math.inf), (torch.ones(2), -0.0)]
    assert not alike(lambda x, r: (torch.tensor([r, 1.0]), torch.tensor(r), torch.full((2, 3), r) * x[0]), calls)


def test_what_is_filled_and_assigned() -> None:
    def fills(x: torch.Tensor, r: float) -> object:
        out, one = torch.zeros(3), torch.zeros(())
        value = x.max().item()
        out[1], out[2] = value, r
        one[...] = value
        whole = torch.full((2,), value)
        whole += 1  # each item is its own
        return out, one, whole, torch.full((2,), value, dtype=torch.float64), torch.full((), value)

    assert not alike(fills, [(x, 0.5 * k) for k, x in enumerate(numbers() * 3)])


def test_a_number_that_is_too_large_is_refused_as_in_eager() -> None:
    def fills(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(2, dtype=torch.float16)
        out[0] = x.sum().item()
        return out

    alike(fills, [(torch.tensor([1.0, 2.0]),), (torch.tensor([60000.0, 60000.0]),)])


def test_what_is_made_is_another_tensor_each_time() -> None:
    def makes(x: torch.Tensor) -> object:
        number = x.double().sum().item()
        one = torch.tensor(number, dtype=torch.float64)
        one += 1
        return one, number, torch.tensor(number)

    assert not alike(makes, [(x,) for x in numbers()])


def test_lists_that_are_no_tensor_raise() -> None:
    alike(lambda x: torch.tensor([[x.sum().item()], [1.0, 2.0]]), [(torch.ones(2),)])
    alike(lambda x: torch.tensor([x.sum().item(), "a"]), [(torch.ones(2),)])


LARGE = 3.0e38
ASSIGNED: dict[str, Callable[[torch.Tensor, Any], object]] = {
    "an item": lambda out, v: out.__setitem__(1, v),
    "items": lambda out, v: out.__setitem__(slice(1), v),
    "a mask": lambda out, v: out.__setitem__(torch.tensor([True, False, True]), v),
    "positions": lambda out, v: out.__setitem__([0, 2], v),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("name", ASSIGNED)
def test_what_does_not_fit_is_refused(name: str, dtype: torch.dtype) -> None:
    def assigns(x: torch.Tensor, scale: float) -> torch.Tensor:
        out = torch.zeros(3, dtype=dtype)
        ASSIGNED[name](out, x.sum().item())
        ASSIGNED[name](out, x.sum().item() * scale)
        return out

    def given(x: torch.Tensor, scale: float) -> object:
        out = torch.zeros(3, dtype=dtype)
        ASSIGNED[name](out, scale)
        return out, torch.full((2,), scale, dtype=dtype) * x[0], torch.full((1,), x[0].item() * scale)

    calls = [(torch.tensor([0.5, 0.25]), scale) for scale in (1.0, 2.0, 0.1, LARGE, 10 * LARGE, math.inf, math.nan, -10 * LARGE)]
    alike(assigns, calls)
    alike(given, calls)
