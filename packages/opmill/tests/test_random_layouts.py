"""Random numbers for tensors of other layouts: the same numbers at the same places as eager draws them, laid out as eager's, after the same
seed."""

from __future__ import annotations

from collections.abc import Callable

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
