"""Functions for symbolic counts give torch's own results, of integers and of sizes that are symbols."""

import pytest
import torch

from opmill_fake_tensors import FakeContext, sized
from opmill_fake_tensors.symbols import Sizes, index_of


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 6])
@pytest.mark.parametrize("dtype", [None, torch.float64, torch.int64])
def test_linspace_of_an_integer(steps, dtype):
    assert torch.equal(sized.linspace(-1.0, 4.0, steps, dtype=dtype), torch.linspace(-1.0, 4.0, steps, dtype=dtype))


def symbolic(call, *sizes):
    """The sizes and the type of what a call gives for a symbol of each size."""
    environment, real = Sizes(), torch.ones(sizes)
    with FakeContext(environment) as context:
        x = context.from_tensor(real, dict.fromkeys(range(len(sizes))))
        got = call(*x.shape)
    hints = {name: s.hint for name, s in environment.symbols.items()}
    return [index_of(n).evaluate(hints) for n in got.shape], got.dtype, environment.decisions


def test_symbols():
    assert symbolic(lambda n: sized.linspace(0.0, 1.0, n), 5) == ([5], torch.float32, [])
    assert symbolic(lambda n: sized.tensor([n, 3, n + 1]), 5) == ([3], torch.int64, [])
    assert symbolic(lambda n: sized.one_hot(torch.zeros(2, dtype=torch.int64), n), 5) == ([2, 5], torch.int64, [])


def test_integers_are_torchs_own():
    ids = torch.tensor([0, 2, 1])
    assert torch.equal(sized.one_hot(ids, 4), torch.nn.functional.one_hot(ids, 4))
    assert torch.equal(sized.tensor([1, 2], dtype=torch.int32), torch.tensor([1, 2], dtype=torch.int32))
