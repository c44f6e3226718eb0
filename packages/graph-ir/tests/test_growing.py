"""Which tensors a graph may write to, as autograd sees it, and what their history is then."""

import pytest
import torch

from opmill_graph_ir.growing import grow, may_grow, may_write

LEAF = torch.randn(4, requires_grad=True)


def _kept():
    made = LEAF * 1
    made.retain_grad()
    return made


@pytest.mark.parametrize(
    ("make", "allowed"),
    [
        (lambda: torch.randn(4), True),
        (lambda: LEAF, False),
        (lambda: LEAF * 1, True),
        (lambda: (LEAF * 1)[1:], True),
        (lambda: LEAF[1:], False),
        (lambda: torch.randn(4)[1:], True),
        (_kept, False),
    ],
    ids=["plain", "leaf", "computed", "part of one computed", "part of a leaf", "part", "keeps its gradient"],
)
def test_what_eager_lets_be_written(make, allowed):
    """Eager raises for what is not allowed, but for one that keeps its gradient."""
    tensor = make()
    assert may_grow(tensor) is allowed
    if not tensor.retains_grad:
        value = LEAF.new_ones(tensor.shape) * LEAF[: len(tensor)]
        if allowed:
            tensor.mul_(value)
        else:
            with pytest.raises(RuntimeError):
                tensor.mul_(value)


def test_one_of_several_views_has_a_history_that_cannot_be_told():
    one, _ = (LEAF * 1).split(2)
    assert not may_write(one) and may_write((LEAF * 1)[:2]) and may_write(LEAF * 1)


@pytest.mark.parametrize("part", [slice(None), slice(1, 3)], ids=["whole", "part"])
def test_what_was_written_has_the_gradient_of_what_it_was_computed_from(part):
    weight = torch.randn(4, requires_grad=True)
    target = torch.zeros(4)
    view = target[part] if part != slice(None) else target
    result = (weight * 3)[part]
    with torch.no_grad():
        view.copy_(result)
    count = view._version
    grow([view], [result])
    assert view._version == count and view.requires_grad
    view.sum().backward()
    wanted = torch.zeros(4)
    wanted[part] = 3
    assert torch.equal(weight.grad, wanted)
