"""Operators of the processor whose meta kernel is wrong or missing: fakes tell of results what eager gives."""

import pytest
import torch

from opmill_fake_tensors import FakeContext

aten = torch.ops.aten


def geometry(out):
    return [(tuple(t.shape), t.stride(), t.dtype) for t in (out if isinstance(out, tuple) else (out,))]


def fractional(x):
    samples = torch.rand(2, 3, 3)
    out, indices = aten.fractional_max_pool3d(x, [2, 2, 2], [2, 2, 2], samples)
    return aten.fractional_max_pool3d_backward(out, x, [2, 2, 2], [2, 2, 2], indices)


CALLS = {
    "margin of rows": (lambda x, t: aten.multi_margin_loss(x, t, 1, 1.0, None, 0), (torch.randn(4, 5), torch.tensor([0, 1, 2, 3]))),
    "margin of one row": (lambda x, t: aten.multi_margin_loss(x, t, 1, 1.0, None, 0), (torch.randn(5), torch.tensor(3))),
    "mean margin": (lambda x, t: aten.multi_margin_loss(x, t), (torch.randn(5), torch.tensor(3))),
    "labels of rows": (
        lambda x, t: aten.multilabel_margin_loss_forward(x, t, 0),
        (torch.randn(2, 3), torch.tensor([[0, 1, -1], [2, -1, 0]])),
    ),
    "labels of one row": (lambda x, t: aten.multilabel_margin_loss_forward(x, t, 0), (torch.randn(3), torch.tensor([0, 1, -1]))),
    "gradient of margin": (
        lambda x, t: aten.multi_margin_loss_backward(torch.ones(()), x, t, 1, 1.0, None, 1),
        (torch.randn(5, 4).t(), torch.tensor([0, 1, 2, 3])),
    ),
    "gradient of a pool": (fractional, (torch.randn(2, 3, 5, 5, 5),)),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_eager(name):
    torch.manual_seed(0)
    function, given = CALLS[name]
    want = geometry(function(*given))
    with FakeContext() as context:
        assert geometry(function(*map(context.from_tensor, given))) == want
