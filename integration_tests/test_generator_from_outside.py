"""A kernel generator that no package here knows of: found by entry point, given kernels, its results used."""

import torch

import opmill
import toy_generator
from opmill.discover import find_generators

X = torch.linspace(-3, 3, 40).reshape(5, 8)


def pointwise(x, y):
    return (x * y + 1).tanh() - x.exp() / 2


def test_it_is_found_beside_the_others():
    assert {"toy", "cpp"} <= {each.name for each in find_generators()}
    [toy] = find_generators(["toy"])
    assert toy.reason is None and isinstance(toy.generator, toy_generator.ToyGenerator)


def test_its_kernels_run():
    toy_generator.ToyGenerator.built.clear()
    compiled = opmill.compile(pointwise, fullgraph=True, options={"generators": ["toy"]})
    with torch.no_grad():
        torch.testing.assert_close(compiled(X, X.flip(0)), pointwise(X, X.flip(0)))
        assert toy_generator.ToyGenerator.built


def test_what_it_does_not_claim_runs_all_the_same():
    def mixed(x):
        return torch.softmax(x * 2 + 1, dim=-1).sum(0)

    compiled = opmill.compile(mixed, fullgraph=True, options={"generators": ["toy"]})
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), mixed(X))


def test_the_next_generator_takes_what_the_first_refuses():
    toy_generator.ToyGenerator.built.clear()

    def mixed(x):
        return torch.softmax(x, dim=-1), x * 3

    compiled = opmill.compile(mixed, fullgraph=True, options={"generators": ["toy", "cpp"]})
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), mixed(X))
