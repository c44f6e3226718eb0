"""Distributions that captured code makes, samples and asks, with their checks of what they are given; and factors that are tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import distributions

from opmill_bytecode_frontend import capture

KINDS: dict[str, Callable[[torch.Tensor], distributions.Distribution]] = {
    "Beta": lambda a: distributions.Beta(a, a + 1),
    "Binomial": lambda a: distributions.Binomial(5, logits=a),
    "Categorical": distributions.Categorical,
    "Dirichlet": distributions.Dirichlet,
    "Gamma": lambda a: distributions.Gamma(a, a),
    "Geometric": lambda a: distributions.Geometric(torch.sigmoid(a)),
    "Kumaraswamy": lambda a: distributions.Kumaraswamy(a, a),
    "LKJCholesky": lambda a: distributions.LKJCholesky(3, a[0]),
    "MixtureSameFamily": lambda a: distributions.MixtureSameFamily(distributions.Categorical(a), distributions.Normal(a, a)),
    "Multinomial": lambda a: distributions.Multinomial(5, a),
    "NegativeBinomial": lambda a: distributions.NegativeBinomial(5.0, torch.sigmoid(a)),
    "Pareto": lambda a: distributions.Pareto(a, a + 3),
    "StudentT": lambda a: distributions.StudentT(a + 3),
    "TransformedDistribution": lambda a: distributions.TransformedDistribution(
        distributions.Normal(a, a), [distributions.SigmoidTransform(), distributions.AffineTransform(1.0, 2.0)]
    ),
    "Uniform": lambda a: distributions.Uniform(a, a + 1),
}


@pytest.fixture(autouse=True)
def checked():
    """What is given is checked, whatever another test's compiler has set."""
    before = distributions.Distribution._validate_args
    distributions.Distribution.set_default_validate_args(True)
    yield
    distributions.Distribution.set_default_validate_args(before)


def seeded(function: Any, *args: Any) -> Any:
    torch.manual_seed(0)
    try:
        return function(*args)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("name", KINDS)
def test_samples_and_their_probabilities(name: str) -> None:
    def program(a: torch.Tensor) -> Any:
        found = KINDS[name](a)
        drawn = found.sample((2,)) if name != "LKJCholesky" else found.sample()
        return drawn, found.log_prob(drawn)

    compiled = capture(program, "eager", fullgraph=True)
    for seed in range(2):
        a = torch.rand(4, generator=torch.Generator().manual_seed(seed)) + 0.5
        for got, want in zip(seeded(compiled, a), seeded(program, a), strict=True):
            assert got.dtype == want.dtype and got.stride() == want.stride()
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", ["Beta", "Dirichlet"])
def test_gradients_of_samples(name: str) -> None:
    a = torch.tensor([0.5, 1.5, 2.5])
    found = []
    for sample in (lambda a: KINDS[name](a).rsample((3,)).square().sum(), None):
        given = a.clone().requires_grad_()
        seeded(
            capture(lambda a: KINDS[name](a).rsample((3,)).square().sum(), "eager", fullgraph=True) if sample is None else sample, given
        ).backward()
        found.append(given.grad)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("wrong", [[0.0, 0.5], [-1.0, 0.5], [0.5, 0.25]])
def test_checks_say_what_they_say(wrong: list[float]) -> None:
    """The message is computed before it is raised."""

    def program(p: torch.Tensor) -> torch.Tensor:
        return distributions.Geometric(p).mean

    compiled = capture(program, "eager", fullgraph=True)
    compiled(torch.tensor([0.25, 0.5]))
    got, want = seeded(compiled, torch.tensor(wrong)), seeded(program, torch.tensor(wrong))
    assert got == want if isinstance(want, str) else torch.equal(got, want)


def test_factors_that_are_tensors() -> None:
    def program(p: torch.Tensor, rate: torch.Tensor) -> Any:
        p.addcdiv_(p, p + 1, value=-rate)
        return p, p.add(p, alpha=rate * 2), torch.sub(p, p, alpha=3), p.addcmul(p, p, value=rate)

    compiled = capture(program, "eager", fullgraph=True)
    for rate in (torch.tensor(0.5), torch.tensor(2.0, dtype=torch.float64)):
        for got, want in zip(compiled(torch.arange(1.0, 5), rate), program(torch.arange(1.0, 5), rate), strict=True):
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("rate", [torch.tensor([0.25]), torch.tensor(0.25, requires_grad=True), torch.tensor(2)])
def test_what_is_no_factor(rate: torch.Tensor) -> None:
    def program(p: torch.Tensor, rate: torch.Tensor) -> Any:
        try:
            return p.addcdiv_(p, p + 1, value=rate)
        except TypeError as error:
            return str(error)

    got, want = capture(program, "eager")(torch.ones(3), rate), program(torch.ones(3), rate)
    assert got == want if isinstance(want, str) else torch.equal(got, want)


def test_sizes_are_no_numbers() -> None:
    def program(x: torch.Tensor) -> Any:
        return x.new(x.shape).fill_(2), x.new(x.size()[:1]).zero_(), x.new(2, 3).zero_(), x.new([1, 2]), x.new((3, 4))

    for got, want in zip(capture(program, "eager", fullgraph=True)(torch.ones(2, 4)), program(torch.ones(2, 4)), strict=True):
        assert torch.equal(got, want)
