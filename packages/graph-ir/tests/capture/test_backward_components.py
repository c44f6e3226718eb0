"""Which results can be differentiated one after the other, against autograd."""

import pytest
import torch

from opmill_graph_ir.capture.backward_components import MOST, groups

W, V = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)


def _shared():
    hidden = (W * V).exp()
    return [hidden.sum(), hidden.sin()]


RESULTS = {
    "nothing in common": lambda: [W.exp(), V.exp()],
    "a leaf in common": lambda: [W.exp(), (W * 2).sin()],
    "a saved value in common": _shared,
    "a sum in common": lambda: _sums(),
    "two and one": lambda: [*_shared(), V.exp()],
    "one between": lambda: [(h := W.exp()).sin(), V.exp(), h.cos()],
    "one alone": lambda: [W.exp()],
    "none": lambda: [],
}


def _sums():
    total = W + V
    return [total.sum(), total * 2]


def differentiated(make, order):
    """Whether the results can be differentiated by one call after the other."""
    results = make()
    try:
        for group in order:
            torch.autograd.backward([results[k] for k in group], [torch.ones_like(results[k]) for k in group], inputs=[W, V])
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("name", RESULTS)
def test_groups_can_be_differentiated_apart_and_no_smaller_ones(name):
    make = RESULTS[name]
    found = groups(make())
    assert sorted(k for group in found for k in group) == list(range(len(make())))
    assert differentiated(make, found)
    for group in found:
        if len(group) > 1:
            others = [g for g in found if g != group]
            assert not differentiated(make, [*[(k,) for k in group], *others])


def test_of_many_all_are_one():
    assert len(groups([W.exp() for _ in range(MOST)])) == MOST
    assert groups([W.exp() for _ in range(MOST + 1)]) == [tuple(range(MOST + 1))]
