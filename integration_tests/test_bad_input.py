"""Each way of asking wrongly has its own answer. (Caches and missing compilers: test_caches.py; unsupported code: test_breaks.py.)"""

import pytest
import torch

import opmill


def double(x):
    return x * 2


@pytest.mark.parametrize("value", [1, "model", type(None), [double], torch.ones(2)], ids=["int", "str", "class", "list", "tensor"])
def test_what_is_not_callable_is_a_type_error(value):
    with pytest.raises(TypeError):
        opmill.compile(value)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"mode": "turbo"}, opmill.list_modes()),
        ({"options": {"turbo": True}}, list(opmill.list_options())),
        ({"backend": "turbo"}, ["eager", "opmill"]),
        ({"options": {"generators": ["turbo"]}}, ["cpp", "toy"]),
    ],
    ids=["mode", "option", "backend", "generator"],
)
def test_an_unknown_name_is_a_value_error_that_names_those_there_are(arguments, named):
    with pytest.raises(ValueError, match="turbo") as raised:
        opmill.compile(double, **arguments)
    assert all(repr(name) in str(raised.value) for name in named)


def test_a_size_that_does_not_fit_raises_eagers_error():
    model = torch.nn.Linear(4, 4)
    compiled = opmill.compile(model)
    for call in (model, compiled):
        with torch.no_grad(), pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            call(torch.ones(2, 5))


def test_an_index_out_of_range_raises_eagers_error():
    table = torch.nn.Embedding(10, 4)
    compiled = opmill.compile(table)
    with torch.no_grad():
        assert torch.equal(compiled(torch.tensor([1, 2])), table(torch.tensor([1, 2])))
        for call in (table, compiled):
            with pytest.raises(IndexError, match="index out of range in self"):
                call(torch.tensor([1, 10]))
