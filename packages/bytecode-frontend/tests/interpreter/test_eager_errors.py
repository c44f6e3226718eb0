"""A program that catches an error of torch sees eager's words, though the operation ran without data."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from opmill_bytecode_frontend import Unsupported, capture
from opmill_bytecode_frontend.graph.eager_errors import asked_of_eager

WRONG = {
    "mm": lambda x: x @ torch.ones(7, 7),
    "mv": lambda x: x @ torch.ones(7),
    "bmm": lambda x: torch.bmm(x[None], torch.ones(2, 4, 4)),
    "linear": lambda x: F.linear(x, torch.ones(5, 5)),
    "view": lambda x: x.view(7),
    "broadcast": lambda x: x + torch.ones(5),
    "index": lambda x: x[9],
    "cat": lambda x: torch.cat([x, torch.ones(2, 3)]),
    "conv": lambda x: F.conv2d(x[None, None], torch.ones(1, 2, 3, 3)),
    "dtype": lambda x: x @ torch.ones(4, 4, dtype=torch.float64),
    "layer norm": lambda x: F.layer_norm(x, (5,)),
    "dim": lambda x: x.sum(5),
    "leaf": lambda x: x.requires_grad_().add_(1),
    "keyword": lambda x: torch.sum(x, nope=1),
    "einsum": lambda x: torch.einsum("ij,jk->ik", x, torch.ones(3, 3)),
    "permute": lambda x: x.permute(0, 0),
    "stack": lambda x: torch.stack([]),
    "reshape": lambda x: x.reshape(3, -1),
    "out": lambda x: torch.add(x, 1, out=torch.ones(4, 4, dtype=torch.int64)),
}


@pytest.mark.parametrize("name", WRONG)
def test_words_are_those_of_eager(name):
    wrong = WRONG[name]

    def f(x):
        try:
            return wrong(x * 1)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            return type(error), str(error), error.__context__, error.__cause__

    assert capture(f)(torch.ones(4, 4)) == f(torch.ones(4, 4))
    assert name == "leaf" or capture(f, fullgraph=True)(torch.ones(4, 4)) == f(torch.ones(4, 4))


@pytest.mark.parametrize("name", ["trace", "inverse", "cholesky", "matrix_exp"])
@pytest.mark.parametrize("make", [lambda: torch.ones(4).requires_grad_(), lambda: torch.tensor([1 + 2j]).conj()], ids=["step", "conj"])
def test_words_are_those_of_eager_for_other_tensors(name, make):
    def f(x):
        try:
            return getattr(x.view(-1), name)()
        except Exception as error:
            return type(error), str(error)

    assert capture(f)(make()) == f(make())


def test_an_operation_that_fails_only_without_data_ends_the_graph():
    library = torch.library.Library("opmill_frontend_picky", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    library.impl("twice", picky, "Meta")
    x = torch.ones(3)

    def f(x):
        return torch.ops.opmill_frontend_picky.twice(x) + 1

    assert torch.equal(capture(f)(x), f(x))
    with pytest.raises(Unsupported, match="FE030(.|\n)*not without data"):
        capture(f, fullgraph=True)(x)


def picky(x):
    raise RuntimeError("not without data")


def test_asking_leaves_nothing_behind():
    calls = []

    @torch.library.custom_op("opmill_frontend_telling::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    assert torch.equal(capture(lambda x: twice(x) + 1)(torch.ones(3)), torch.full((3,), 3.0)) and calls == [1]
    drawn = []
    for call in (lambda f: f, capture):
        generator = torch.Generator().manual_seed(3)
        f = call(lambda x, generator=generator: x + torch.rand(3, generator=generator))
        drawn.append((f(torch.zeros(3)), f(torch.zeros(3)), generator.get_state()))
    assert all(map(torch.equal, *drawn))


def test_what_cannot_be_asked():
    assert asked_of_eager(torch.neg, [torch.ones(2)], {}) == (False, None)
