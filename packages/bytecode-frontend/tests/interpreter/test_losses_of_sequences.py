"""Losses of sequences whose lengths stand in tensors (connectionist temporal classification) are part of a graph."""

import pytest
import torch
import torch.nn.functional as F

from opmill_bytecode_frontend import capture


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("flat", [True, False], ids=["one row of labels", "a row for each"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_as_eager(reduction, flat, dtype):
    labels = torch.tensor([[1, 2, 3, 3], [4, 1, 1, 1], [2, 2, 1, 1]])
    lengths, of_labels = torch.tensor([8, 6, 8], dtype=dtype), torch.tensor([3, 1, 2], dtype=dtype)
    if flat:
        labels = torch.cat([row[:count] for row, count in zip(labels, of_labels.tolist(), strict=True)])

    def loss(x, labels, lengths, of_labels):
        return F.ctc_loss(x.log_softmax(-1), labels, lengths, of_labels, reduction=reduction, zero_infinity=True) * 2

    found = capture(loss, fullgraph=True)
    for k in range(2):
        results = []
        for call in (found, loss):
            x = torch.randn(8, 3, 5, generator=torch.Generator().manual_seed(k), dtype=torch.float64).requires_grad_()
            value = call(x, labels, lengths, of_labels)
            value.sum().backward()
            results.append((value.detach(), x.grad))
        for ours, want in zip(*results, strict=True):
            torch.testing.assert_close(ours, want)


def test_lengths_that_do_not_fit_raise_as_in_eager():
    def loss(x, lengths):
        return F.ctc_loss(x.log_softmax(-1), torch.ones(1, 2, dtype=torch.int64), lengths, torch.tensor([2]))

    found = capture(loss, fullgraph=True)
    found(torch.zeros(8, 1, 5), torch.tensor([8]))
    with pytest.raises(RuntimeError, match="at most 8"):
        found(torch.zeros(8, 1, 5), torch.tensor([9]))
