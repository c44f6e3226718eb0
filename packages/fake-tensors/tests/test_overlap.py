"""Writes that torch refuses because an argument lies in part in what is written."""

import pytest
import torch

from opmill_fake_tensors import FakeContext, NoFakeKernel

X = torch.arange(12.0)


def _eager(function):
    try:
        function(X.clone())
    except RuntimeError as e:
        return str(e)
    return ""


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[1:].add_(x[:-1]),
        lambda x: x[:6].copy_(x[3:9]),
        lambda x: x[:6].mul_(x[6:]),
        lambda x: x.add_(x),
        lambda x: x.view(3, 4).add_(x.view(3, 4)),
        lambda x: x.view(3, 4).mul_(x[:4]),
        lambda x: x[2:5].fill_(x[3]),
        lambda x: torch._foreach_add_([x[1:]], [x[:-1]]),
        lambda x: x[1:].gt_(x[:-1]),
        lambda x: x[:0].add_(x[:0]),
    ],
)
def test_dense_parts_are_refused_in_eagers_words(function):
    expected = _eager(function)
    with FakeContext() as ctx:
        fake = ctx.from_tensor(X.clone())
        if expected:
            with pytest.raises(RuntimeError) as raised:
                function(fake)
            assert str(raised.value) == expected
        else:
            function(fake)


@pytest.mark.parametrize("function", [lambda x: x[::2].add_(x[:6]), lambda x: x[::3].mul_(x[2:6])])
def test_of_gaps_that_meet_nothing_is_known(function):
    with FakeContext() as ctx, pytest.raises(NoFakeKernel):
        function(ctx.from_tensor(X.clone()))


def test_gaps_that_do_not_meet_are_no_matter():
    with FakeContext() as ctx:
        fake = ctx.from_tensor(X.clone())
        fake[::2].add_(fake[1::2])
