"""Hooks on saved tensors, while fakes are run."""

import pytest
import torch

from opmill_fake_tensors.hooks import no_hooks_on_saved_tensors

hooks = torch.autograd.graph.saved_tensors_hooks


def saved(log):
    x = torch.ones(2, requires_grad=True)
    before = len(log)
    x.exp()
    return log[before:]


def test_those_of_the_caller_are_not_called_and_come_back_in_their_order():
    log = []
    with hooks(lambda t: log.append("outer") or t, lambda t: t), hooks(lambda t: log.append("inner") or t, lambda t: t):
        assert saved(log) == ["inner"]
        with no_hooks_on_saved_tensors():
            assert saved(log) == []
            with hooks(lambda t: log.append("own") or t, lambda t: t):
                assert saved(log) == ["own"]
        assert saved(log) == ["inner"]
        with pytest.raises(KeyError), no_hooks_on_saved_tensors():
            raise KeyError
        assert saved(log) == ["inner"]
    assert saved(log) == []
