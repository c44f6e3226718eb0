"""What is drawn has eager's sizes, types and strides, whatever it is drawn like."""

import pytest
import torch
from beside_eager import as_eager, layouts

CALLS = {
    "rand_like": torch.rand_like,
    "randn_like in double": lambda x: torch.randn_like(x, dtype=torch.float64),
    "randint_like": lambda x: torch.randint_like(x, 2, 9),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "poisson": lambda x: torch.poisson(x.abs()),
    "normal of tensors": lambda x: torch.normal(x, x.abs()),
    "normal around a number": lambda x: torch.normal(2.0, x.abs()),
    "normal with a number": lambda x: torch.normal(x, 2.0),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5),
    "alpha dropout": lambda x: torch.nn.functional.alpha_dropout(x, 0.5),
    "rrelu": lambda x: torch.nn.functional.rrelu(x, training=True),
    "uniform_": lambda x: x.clone().uniform_(),
    "exponential_": lambda x: x.clone().exponential_(),
    "geometric_": lambda x: x.clone().geometric_(0.5),
}


@pytest.mark.parametrize("name", CALLS)
def test_like_a_tensor(name):
    for x in layouts(3, 4, 5):
        as_eager(CALLS[name], x)
    as_eager(CALLS[name], torch.tensor(0.5))
    as_eager(CALLS[name], torch.ones(0, 3))


def test_of_a_size():
    x = torch.ones(3)
    as_eager(lambda x: torch.normal(0.3, 1.0, (2, 3)) + x, x)
    as_eager(lambda x: torch.normal(0.3, 1.0, (2, 3), dtype=torch.float64) + x, x)
    as_eager(lambda x: torch.rand(2, x.shape[0]), x)
    as_eager(lambda x: torch.randint(5, (x.shape[0], 2)), x)
