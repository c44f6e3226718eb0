"""Fakes of jagged tensors: whose rows are as long as whose, and operators between packed and padded rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opmill_fake_tensors import FakeContext, FakeTensor
from opmill_fake_tensors.jagged import is_jagged, is_ragged, ragged_size
from opmill_fake_tensors.wrappers import put_together, take_apart

OFFSETS = torch.tensor([0, 3, 8, 10])


def jagged(at: torch.Tensor = OFFSETS, grad: bool = False) -> Any:
    return torch.nested.nested_tensor_from_jagged(torch.ones(10, 4), at).requires_grad_(grad)


def test_what_is_taken_apart_is_put_together() -> None:
    x = jagged(grad=True)
    form, leaves = take_apart(x)
    assert form is not None and is_jagged(form.cls) and form.differentiated == (True, False)
    y = put_together(form, iter(leaves))
    assert not y.requires_grad and y.offsets() is x.offsets() and y.shape == x.shape
    other, _ = take_apart(jagged(OFFSETS.clone()))
    assert form.fits(other)


def test_rows_are_as_long_where_one_tensor_says_so() -> None:
    x, y, other = jagged(), jagged(), jagged(OFFSETS.clone())
    with FakeContext() as context:
        a, b, c = (context.from_tensor(t) for t in (x, y, other))
        assert type(a._values) is FakeTensor and is_ragged(a.shape[1]) and not is_ragged(a.shape[0])
        assert ragged_size(a) == ragged_size(b) != ragged_size(c)
        assert (a + b).shape == a.shape and torch.nn.functional.linear(a, torch.ones(6, 4)).shape[2] == 6
        with pytest.raises(RuntimeError, match="cannot call binary pointwise function"):
            a + c
    assert context.has_rows(id(OFFSETS)) and not context.has_rows(id(x))


def test_padded_rows_are_packed() -> None:
    with FakeContext() as context:
        x = context.from_tensor(jagged())
        padded = x.to_padded_tensor(0.0, (3, 6, 4))
        packed = torch.ops.aten._padded_dense_to_jagged_forward(padded, [x.offsets()], 10)
    assert padded.shape == (3, 6, 4) and packed.shape == (10, 4) and packed.dtype is torch.float32


def test_a_fake_requires_grad_as_the_tensor_does() -> None:
    with FakeContext() as context:
        assert context.from_tensor(jagged(grad=True)).requires_grad
        computed: Any = context.from_tensor(jagged(grad=True) * 2)
    assert computed.requires_grad and not computed.is_leaf
