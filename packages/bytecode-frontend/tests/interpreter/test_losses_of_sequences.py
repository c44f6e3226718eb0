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


LISTS = {
    "lists": lambda x, labels: F.ctc_loss(x.log_softmax(-1), labels, [8, 6, 8], [3, 1, 2]),
    "tuples": lambda x, labels: F.ctc_loss(x.log_softmax(-1), labels, (8, 6, 8), (3, 1, 2), reduction="sum"),
    "by name": lambda x, labels: F.ctc_loss(x.log_softmax(-1), labels, target_lengths=[3, 1, 2], input_lengths=[8] * 3, blank=1),
    "of sizes": lambda x, labels: F.ctc_loss(x.log_softmax(-1), labels, [x.size(0)] * 3, [labels.size(1)] * 3, zero_infinity=True),
    "of a module": lambda x, labels: torch.nn.CTCLoss(reduction="none")(x.log_softmax(-1), labels, [8, 8, 8], [2, 2, 2]),
    "of torch": lambda x, labels: torch.ctc_loss(x.log_softmax(-1), labels, [8, 6, 8], [3, 1, 2]),
    "of some": lambda x, labels: F.ctc_loss(x.log_softmax(-1), labels, torch.tensor([8, 6, 8]), torch.tensor([3, 1, 2])),
    "too long": lambda x, labels: F.ctc_loss(x.log_softmax(-1), labels, [9, 9, 12], [3, 1, 2]),
    "too few": lambda x, labels: F.ctc_loss(x.log_softmax(-1), labels, [8, 8], [3, 1]),
}


@pytest.mark.parametrize("loss", LISTS.values(), ids=LISTS)
def test_lengths_in_lists(loss):
    labels = torch.tensor([[2, 2, 3, 3], [4, 3, 3, 3], [2, 2, 4, 4]])
    found = capture(loss, fullgraph=True)
    for size in (8, 9, 11):
        results = []
        for call in (found, loss):
            x = torch.randn(size, 3, 5, generator=torch.Generator().manual_seed(size), dtype=torch.float64).requires_grad_()
            try:
                value = call(x, labels)
                value.sum().backward()
                results.append((value.detach(), x.grad))
            except RuntimeError as error:
                results.append(str(error))
        torch.testing.assert_close(*results) if type(results[0]) is tuple else None
        assert type(results[0]) is type(results[1])
        assert type(results[0]) is tuple or results[0] == results[1]
