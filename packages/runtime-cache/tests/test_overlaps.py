"""What calls of operators may not overlap in memory."""

import pytest
import torch

from opmill_runtime_cache.executor.names import operator_of
from opmill_runtime_cache.executor.overlaps import apart, written_by
from opmill_runtime_cache.plan.model import Call, ListArg, Slot


def call(op, *args, **kwargs):
    return Call(op, tuple(map(Slot, args)), {k: Slot(v) for k, v in kwargs.items()}, ())


@pytest.mark.parametrize(
    ("step", "written", "found"),
    [
        (call("aten::exp.out", 0, out=1), [1], {(1, 0, 1)}),
        (call("aten::mm.out", 0, 1, out=2), [2], {(2, 0, 0), (2, 1, 0)}),
        (call("aten::addmm.out", 0, 1, 2, out=3), [3], {(3, 0, 1), (3, 1, 0), (3, 2, 0)}),
        (call("aten::addmm.out", 0, 0, 2, out=3), [3], {(3, 0, 0), (3, 2, 0)}),  # what is added to is a factor, too
        (call("aten::sort.values", 0, values=1, indices=2), [1, 2], {(1, 0, 0), (2, 0, 0), (1, 2, 0)}),
        (call("aten::add_.Tensor", 0, 1), [0], set()),  # no out=
        (call("aten::exp", 0), [], set()),
        (Call("aten::cat.out", (ListArg((Slot(0), Slot(1))),), {"out": Slot(2)}, ()), [2], {(2, 0, 0), (2, 1, 0)}),
    ],
    ids=lambda v: getattr(v, "op", ""),
)
def test_what_is_written_and_what_it_may_be(step, written, found):
    overload = operator_of(step.op)
    assert written_by(step, overload) == written and set(apart(step, overload)) == found


def test_what_has_no_schema_says_nothing():
    assert list(apart(call("opmill::cond", 0), None)) == []


def test_a_product_may_be_written_over_what_it_is_added_to():
    """As torch does it."""
    c, a, b = torch.randn(3, 3), torch.randn(3, 3), torch.randn(3, 3)
    expected = torch.addmm(c, a, b)
    torch.addmm(c, a, b, out=c)
    torch.testing.assert_close(c, expected)
