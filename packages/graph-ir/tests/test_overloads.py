"""Operators by name."""

import pytest
import torch

from opmill_graph_ir.overloads import exchanges, overload, resolve


def test_names_and_operators_are_one_another():
    for func in (torch.ops.aten.add.Tensor, torch.ops.aten.relu.default, torch.ops.prims.sin.default):
        assert resolve(func.name()) is func and overload(func.name()) is func


def test_what_is_not_there():
    assert overload("aten::nothing") is None and overload("mine::op") is None and overload("aten::add.Nothing") is None
    with pytest.raises(AttributeError):
        resolve("aten::add.Nothing")


def test_collectives_exchange():
    assert exchanges("_c10d_functional::all_reduce") and exchanges("_c10d_functional::wait_tensor")
    assert not exchanges("aten::mm") and not exchanges("opmill::cond")
