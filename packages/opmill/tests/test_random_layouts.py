"""Random numbers for tensors of other layouts: the same numbers at the same places as eager draws them, laid out as eager's, after the same
seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import opmill

DRAWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "bernoulli of one probability": lambda x: x.bernoulli(0.5),
    "poisson": lambda x: torch.poisson(x.abs()),
    "gamma": lambda x: torch._standard_gamma(x.abs() + 1),
    "normal of means": lambda x: torch.normal(x, 1.0),
    "normal of deviations": lambda x: torch.normal(0.0, x.abs()),
    "normal of both": lambda x: torch.normal(x, x.abs()),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "uniform_": lambda x: x.clone().uniform_(),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.3),
    "bernoulli_ of probabilities": lambda x: x.clone().bernoulli_(x.sigmoid()),
    "bernoulli_ of fewer probabilities": lambda x: x.clone().bernoulli_(x[..., :1].sigmoid()),
    "dropout": lambda x: F.dropout(x, 0.5),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "dropout in place": lambda x: F.dropout(x.clone(), 0.5, inplace=True),
    "exponential_": lambda x: x.clone().exponential_(),
}
LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "inner dimensions exchanged": lambda: torch.randn(2, 3, 2).transpose(1, 2),
    "turned": lambda: torch.randn(5, 3, 4).permute(2, 0, 1),
    "expanded": lambda: torch.randn(3, 1).expand(2, 3, 4),
    "with gaps": lambda: torch.randn(4, 6, 8)[::2, ::2, ::2],
    "outer dimensions exchanged": lambda: torch.randn(4, 5, 6).transpose(0, 1),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", DRAWN)
def test_numbers_places_and_strides(name: str, dynamic: bool | None) -> None:
    function = DRAWN[name]
    compiled = opmill.compile(function, dynamic=dynamic)
    for make in LAYOUTS.values():
        found = []
        for run in (function, compiled):
            torch.manual_seed(0)
            x = make()
            found.append((run(x), torch.rand(1)))
        (expected, after), (got, after_got) = found
        torch.testing.assert_close(got, expected)
        assert got.stride() == expected.stride()
        assert torch.equal(after_got, after)


FILLED: dict[str, Callable[[torch.Tensor], Any]] = {
    "normal_": lambda v: v.normal_(1, 2),
    "uniform_": lambda v: v.uniform_(),
    "exponential_": lambda v: v.exponential_(),
    "bernoulli_": lambda v: v.bernoulli_(),
    "random_": lambda v: v.random_(),
    "geometric_": lambda v: v.geometric_(0.5),
    "log_normal_": lambda v: v.log_normal_(),
    "cauchy_": lambda v: v.cauchy_(),
}
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda x: x,
    "turned": lambda x: x.t(),
    "every second column": lambda x: x[:, ::2],
    "every second column, turned": lambda x: x[:, ::2].t(),
    "every third row of the turned": lambda x: x.t()[::3],
    "the last columns": lambda x: x[:, 3:],
    "a column": lambda x: x[:, 1],
    "a diagonal": lambda x: x.diagonal(),
    "three dimensions": lambda x: x.view(4, 2, -1)[:, :, ::3].permute(2, 0, 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64], ids=str)
@pytest.mark.parametrize("name", FILLED)
def test_numbers_drawn_into_a_view(name: str, dtype: torch.dtype) -> None:
    """Kernels draw other numbers, or in another order, where a tensor has gaps."""
    for view in VIEWS.values():

        def program(x: torch.Tensor) -> torch.Tensor:
            FILLED[name](view(x))
            return x * 1

        try:
            program(torch.zeros(8, 24, dtype=dtype))
        except (RuntimeError, NotImplementedError):
            continue
        compiled = opmill.compile(program)
        for columns in (24, 30):
            found = []
            for run in (program, compiled):
                torch.manual_seed(0)
                x = torch.zeros(8, columns, dtype=dtype)
                found.append((run(x), x, torch.rand(1)))
            for got, expected in zip(found[1], found[0], strict=True):
                assert torch.equal(got, expected)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("training", [False, True])
def test_leaky_slopes_are_laid_out_anew(training: bool, dynamic: bool | None) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.rrelu(x, training=training)

    compiled = opmill.compile(program, dynamic=dynamic)
    for make in LAYOUTS.values():
        found = []
        for run in (program, compiled):
            torch.manual_seed(0)
            x = make().requires_grad_()
            y = run(x)
            y.sum().backward()
            found.append((y, x.grad))
        assert found[0][0].stride() == found[1][0].stride()
        torch.testing.assert_close(found[1], found[0])
