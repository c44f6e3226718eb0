"""Views that autograd refuses writes to: known as such, and made such again when they leave a graph."""

import pytest
import torch

from opmill_bytecode_frontend.graph.several import is_one_of_several, is_refused, one_of_several


def refuses(view: torch.Tensor) -> bool:
    """Whether eager refuses a write, now that gradients are recorded."""
    try:
        view.mul_(2)
    except RuntimeError:
        return True
    return False


def in_no_grad(x):
    with torch.no_grad():
        return x[:1]


VIEWS = {
    "one of several": lambda x: x.unbind()[0],
    "one of a split": lambda x: (x * 1).split(1)[0],
    "a view": lambda x: (x * 1)[:1],
    "a view of a leaf": lambda x: x[:1],
    "from no_grad": lambda x: in_no_grad(x * 1),
    "no view": lambda x: x * 1,
    "without gradients": lambda x: x.detach()[:1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_refused_is_what_eager_refuses(name):
    def made():
        return VIEWS[name](torch.ones(2, 2, requires_grad=True))

    assert is_refused(made()) == refuses(made())


def test_what_a_graph_gave_is_such_a_view_again():
    given = torch.ones(2, requires_grad=True) * 1
    view = one_of_several(given)
    assert is_one_of_several(view) and refuses(view)
    plain = torch.ones(2)
    assert one_of_several(plain) is plain and not is_one_of_several(plain)
