"""Operators on matrices in batches of any size."""

import pytest
import torch

from changing import differs

linalg, aten = torch.linalg, torch.ops.aten
ROWS = {
    "qr": linalg.qr,
    "qr, complete": lambda x: linalg.qr(x[..., :2], "complete"),
    "eigh": linalg.eigh,
    "eigenvalues, symmetric": linalg.eigvalsh,
    "eig": linalg.eig,
    "eigenvalues": linalg.eigvals,
    "svd": lambda x: linalg.svd(x, full_matrices=False),
    "singular values": linalg.svdvals,
    "cholesky": linalg.cholesky,
    "cholesky, upper": lambda x: linalg.cholesky(x, upper=True),
    "inverse of a cholesky": lambda x: torch.cholesky_inverse(linalg.cholesky(x)),
    "solved by a cholesky": lambda x: torch.cholesky_solve(x, linalg.cholesky(x)),
    "inverse": linalg.inv,
    "solved": lambda x: linalg.solve(x, x[..., :2]),
    "factored": linalg.lu_factor,
    "factored in three": linalg.lu,
    "factored, symmetric": linalg.ldl_factor,
    "determinant": linalg.det,
    "its logarithm": linalg.slogdet,
    "exponential": linalg.matrix_exp,
}


def batches(size):
    made = torch.rand(size, 3, 3, generator=torch.Generator().manual_seed(size))
    return made @ made.mT + 3 * torch.eye(3)


LAYOUTS = {
    "one behind the other": batches,
    "transposed": lambda size: batches(size).mT,
    "several dimensions": lambda size: torch.stack([batches(size), batches(size)], 1),
    "expanded": lambda size: batches(1).expand(size, 3, 3),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_as_eager_of_any_size(row, make):
    assert differs(row, make) is None


def test_one_of_which_a_matrix_changes_assumes_the_size():
    assert "assumed" in differs(lambda x: torch.linalg.qr(x.transpose(0, 1)), lambda size: torch.rand(size, 2, 3))
