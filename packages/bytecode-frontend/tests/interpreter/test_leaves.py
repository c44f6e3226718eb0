"""Where the history of a tensor leads, as autograd knows it."""

import torch

from opmill_bytecode_frontend.graph.leaves import as_given, is_leaf, reached
from opmill_fake_tensors import FakeContext


def test_histories():
    given, own = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    made = {id(own)}
    assert reached((given * 2).sum(), set()) and reached(given * own, made)
    assert not reached(own.exp() + 1, made) and not reached(torch.ones(2), set())


def test_a_value_that_captured_code_made_leads_nowhere_else():
    value = torch.ones(2, requires_grad=True) * 2
    assert not reached(value, {id(value)})


def test_a_view_that_autograd_refuses_to_say_of_is_no_leaf():
    base = torch.ones(2)
    with torch.no_grad():
        view = base[:1]
    base.mul_(torch.ones(2, requires_grad=True))
    assert not is_leaf(view)
    assert is_leaf(torch.ones(1)) and not is_leaf(torch.ones(1, requires_grad=True) + 1)


def test_an_input_that_requires_grad_since_a_write_stands_as_it_was():
    real = torch.ones(2)
    with FakeContext() as context:
        fake = context.from_tensor(real)
        assert as_given(fake, real) is fake
        fake.mul_(torch.ones(2, requires_grad=True))
        assert fake.requires_grad and not as_given(fake, real).requires_grad
        assert as_given(fake, None) is fake
