"""Systems of equations beside eager: sides, transposed and stacked matrices, right sides of one and of many columns."""

import itertools

import pytest
import torch
from beside_eager import as_eager

from opmill_fake_tensors import FakeContext


def triangular(*batch):
    return (torch.rand(*batch, 4, 4, generator=torch.Generator().manual_seed(0)) + torch.eye(4)).triu()


@pytest.mark.parametrize(("left", "unit"), itertools.product([True, False], [True, False]))
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("batches", [((), ()), ((2,), (2,)), ((2,), ()), ((), (3,)), ((2, 1), (3,))], ids=str)
def test_triangular(batches, turned, left, unit):
    a = triangular(*batches[0])
    b = torch.rand(*batches[1], *((4, 3) if left else (3, 4)))
    b = b.mT.contiguous().mT if turned else b

    def solve(a, b):
        return torch.linalg.solve_triangular(a, b, upper=True, left=left, unitriangular=unit)

    as_eager(solve, a, b)
    as_eager(lambda a, b: solve(a.mT.contiguous().mT, b), a, b)


@pytest.mark.parametrize("columns", [(), (1,), (3,)], ids=str)
def test_solve(columns):
    a = triangular()
    as_eager(torch.linalg.solve, a, torch.rand(4, *columns))
    as_eager(torch.linalg.solve, a.mT, torch.rand(4, *columns))


@pytest.mark.parametrize("sizes", [(4, 3), (3, 4), (2, 5, 5), (2, 3, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=str)
def test_both_factors_in_one(sizes, dtype) -> None:  # type: ignore[no-untyped-def]
    a = torch.ones(sizes, dtype=dtype)
    with FakeContext() as context:
        found = torch.geqrf(context.from_tensor(a))
    for made, expected in zip(found, torch.geqrf(a), strict=True):
        assert (made.shape, made.stride(), made.dtype) == (expected.shape, expected.stride(), dtype)
