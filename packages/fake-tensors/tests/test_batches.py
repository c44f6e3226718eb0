"""Operators on matrices in batches of any size."""

import pytest
import torch

from changing import differs
from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes

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


def symmetric(x):
    return x @ x.mT + 3 * torch.diag_embed(torch.ones_like(x[:, 0]))


OF_ANY = {
    "qr": linalg.qr,
    "qr, complete": lambda x: linalg.qr(x, "complete"),
    "r alone": lambda x: linalg.qr(x, "r")[1],
    "factored": linalg.lu_factor,
    "factored in three": linalg.lu,
    "inverted": linalg.pinv,
    "of low rank": lambda x: torch.svd_lowrank(x, 2),
    "components": lambda x: torch.pca_lowrank(x, 2),
}
CHANGING = {
    "tall": lambda size: torch.rand(size, 3, generator=torch.Generator().manual_seed(size)),
    "wide": lambda size: torch.rand(3, size, generator=torch.Generator().manual_seed(size)).T.contiguous().T,
    "of doubles": lambda size: torch.rand(size, 3, dtype=torch.float64),
    "complex": lambda size: torch.rand(size, 3, dtype=torch.complex64),
}


@pytest.mark.parametrize("make", CHANGING.values(), ids=CHANGING)
@pytest.mark.parametrize("row", OF_ANY.values(), ids=OF_ANY)
def test_of_any_size_as_eager(row, make):
    turned = make(5).shape[0] != 5
    assert differs((lambda x: row(x.T)) if turned else row, (lambda size: make(size).T) if turned else make) is None


@pytest.mark.parametrize("row", [*ROWS.values(), lambda x: linalg.pinv(x, hermitian=True)], ids=[*ROWS, "inverted, symmetric"])
def test_square_ones_of_any_size_as_eager(row):
    assert differs(lambda x: row(symmetric(x)), CHANGING["tall"]) is None


def test_batches_and_matrices_of_any_size_as_eager():
    assert differs(lambda x: linalg.qr(torch.stack([x, x]).transpose(0, 1) * x.unsqueeze(0).sum()), CHANGING["tall"]) is None


@pytest.mark.parametrize("row", [linalg.eigvals, linalg.det, linalg.eigh], ids=["eigenvalues", "determinant", "symmetric"])
def test_what_is_no_square_is_refused(row):
    context = FakeContext(Sizes())
    fake = context.from_tensor(torch.rand(5, 3), {0: None})
    with context, pytest.raises(RuntimeError, match="square"):
        row(fake)
