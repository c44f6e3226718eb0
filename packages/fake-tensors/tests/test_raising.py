"""Which operators raise for contents, against eager."""

import pytest
import torch

from opmill_fake_tensors.raising import raises_for_content

BAD = {
    "aten::embedding": lambda: torch.ops.aten.embedding(torch.ones(3, 2), torch.tensor([3])),
    "aten::gather": lambda: torch.ones(3).gather(0, torch.tensor([3])),
    "aten::index_select": lambda: torch.ones(3).index_select(0, torch.tensor([3])),
    "aten::index": lambda: torch.ones(3)[torch.tensor([3])],
    "aten::scatter_add": lambda: torch.ones(3).scatter_add(0, torch.tensor([3]), torch.ones(1)),
    "aten::take": lambda: torch.ones(3).take(torch.tensor([3])),
    "aten::nll_loss": lambda: torch.nn.functional.nll_loss(torch.ones(1, 3), torch.tensor([3])),
    "aten::binary_cross_entropy": lambda: torch.nn.functional.binary_cross_entropy(torch.tensor([2.0]), torch.tensor([1.0])),
    "aten::multinomial": lambda: torch.multinomial(torch.tensor([-1.0]), 1),
    "aten::bernoulli": lambda: torch.bernoulli(torch.tensor([2.0])),
    "aten::bincount": lambda: torch.bincount(torch.tensor([-1])),
    "aten::histc": lambda: torch.histc(torch.tensor([float("nan")]), 3),
    "aten::masked_scatter": lambda: torch.ones(3).masked_scatter(torch.tensor([True] * 3), torch.ones(1)),
    "aten::repeat_interleave": lambda: torch.repeat_interleave(torch.tensor([-1])),
    "aten::cholesky": lambda: torch.cholesky(-torch.eye(2)),
    "aten::floor_divide": lambda: torch.tensor([1]) // torch.tensor([0]),
    "aten::remainder": lambda: torch.tensor([1]) % torch.tensor([0]),
}


@pytest.mark.parametrize("name", BAD)
def test_what_eager_refuses_for_its_content_is_run(name):
    with pytest.raises((RuntimeError, IndexError)):
        BAD[name]()
    assert raises_for_content(name, "int64", True)


@pytest.mark.parametrize(("dtype", "by_tensor", "raises"), [("float32", True, False), ("int8", False, False), ("uint8", True, True)])
def test_divisions_raise_by_zero_in_a_tensor_of_integers(dtype, by_tensor, raises):
    assert raises_for_content("aten::remainder", dtype, by_tensor) is raises


def test_most_operators_raise_for_nothing_in_them():
    assert not any(raises_for_content(f"aten::{name}", "int64", True) for name in ("add", "mm", "exp", "sort", "where", "mul"))
