"""Compiled writes are counted as eager's are: autograd compares the counters of what it has saved."""

import pytest
import torch

import opmill

F = torch.nn.functional
WRITES = {
    "once": lambda x: x.add_(1),
    "twice": lambda x: x.add_(1).mul_(2),
    "and a part": lambda x: (x.add_(1), x[0].mul_(2)),
    "a part": lambda x: x[1:].zero_(),
    "a view": lambda x: x.view(-1).add_(1),
    "data": lambda x: x.data.add_(1),
    "data twice": lambda x: (x.data.add_(1), x.data[0].mul_(2)),
    "data and itself": lambda x: (x.data.add_(1), x.mul_(2)),
    "detached": lambda x: x.detach().add_(1),
    "an item": lambda x: x.__setitem__(0, 5),
    "a transpose": lambda x: x.t().add_(1),
    "out": lambda x: torch.add(x, 1, out=x),
    "filled": lambda x: x.fill_(0).add_(2),
    "in place": lambda x: F.relu(x, inplace=True),
    "nothing": lambda x: x + 1,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_counted_as_in_eager(write):
    def counts(call):
        x = torch.ones(2, 2)
        for _ in range(3):
            call(x)
            yield x._version, x.tolist()

    assert list(counts(opmill.compile(write))) == list(counts(write))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_counted_beside_a_gradient(write):
    def function(x, w):
        with torch.no_grad():
            write(x)
        return (w * w).sum()

    def counts(call):
        x, w = torch.ones(2, 2), torch.ones(2, requires_grad=True)
        for _ in range(3):
            call(x, w).backward()
            yield x._version, x.tolist(), w.grad.tolist()

    assert list(counts(opmill.compile(function))) == list(counts(function))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_was_saved_before(write):
    def outcome(call):
        x, w = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)
        y = (x * w).sum()
        call(w)
        try:
            y.backward()
        except RuntimeError as exc:
            return str(exc)
        return x.grad.tolist()

    assert outcome(opmill.compile(write)) == outcome(write)


def test_parameters_of_modules():
    def counts(call, module):
        with torch.no_grad():
            call(module)
        return [p._version for p in module.parameters()]

    def average(module):
        for p in module.parameters():
            p.mul_(0.9).add_(0.1)
            p.data.add_(1)

    assert counts(opmill.compile(average), torch.nn.Linear(2, 2)) == counts(average, torch.nn.Linear(2, 2))


def test_several_inputs_that_share_memory():
    def f(a, b):
        a.add_(1).mul_(2)
        b.data.add_(1)
        return a.sum() + b.sum()

    def counts(call):
        x, y = torch.ones(4), torch.ones(4)
        call(x, y)
        call(x[:2], x[2:])
        return x._version, y._version, x.tolist()

    assert counts(opmill.compile(f)) == counts(f)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_in_inference_mode(write):
    """Where tensors are made that do not count."""
    call = opmill.compile(write, fullgraph=True)
    for made, run in ((True, True), (False, True)):
        with torch.inference_mode(made):
            x, y = torch.ones(2, 2), torch.ones(2, 2)
        with torch.inference_mode(run):
            for _ in range(2):
                call(x), write(y)
        assert x.tolist() == y.tolist()
