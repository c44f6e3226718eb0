"""Positions that do not fit are refused on fakes in eager's words, before anything runs."""

import pytest
import torch

from opmill_fake_tensors import FakeContext

X, IDS = torch.zeros(3, 4), torch.tensor([0, 2])

REFUSED = {
    "a matrix of positions": lambda x, i: x.index_select(0, i.reshape(1, 2)),
    "a dimension that is not there": lambda x, i: x.index_select(2, i),
    "two of a number": lambda x, i: x[0, 0].index_select(0, i),
    "index_add of another count": lambda x, i: x.index_add(0, i, torch.ones(3, 4)),
    "index_add of other rows": lambda x, i: x.index_add(0, i, torch.ones(2, 5)),
    "index_add of a matrix of positions": lambda x, i: x.index_add(0, i.reshape(2, 1), torch.ones(2, 4)),
    "index_add behind the source's dimensions": lambda x, i: x.index_add(1, i, torch.ones(2)),
    "too many positions": lambda x, i: torch.ops.aten.index_put(x, [i, i, i], torch.ones(2)),
    "values that do not fit": lambda x, i: torch.ops.aten.index_put(x, [i], torch.ones(2, 5)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_in_eager(name):
    with pytest.raises((RuntimeError, IndexError)) as want:
        REFUSED[name](X.clone(), IDS)
    with FakeContext() as context, pytest.raises(type(want.value)) as got:
        REFUSED[name](context.from_tensor(X), context.from_tensor(IDS))
    assert str(got.value).partition("\n")[0] == str(want.value).partition("\n")[0]


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_what_fits_is_taken(dim):
    source = torch.ones(2, 4) if dim == 0 else torch.ones(3, 2)
    with FakeContext() as context:
        x, ids, given = map(context.from_tensor, (X, IDS, source))
        assert x.index_add(dim, ids, given).shape == X.shape
        assert x.index_select(dim, ids).shape == source.shape
