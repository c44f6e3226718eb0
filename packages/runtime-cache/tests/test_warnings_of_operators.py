"""What operators warn of while a plan calls them goes through Python's filters, also where the GIL is released."""

import warnings

import pytest
import torch

from opmill_runtime_cache.executor import bind
from opmill_runtime_cache.plan.model import Call, ListArg, Literal, Plan, Slot, SlotOutput, TensorInput, TensorSpec

SQUARE, MASK = TensorSpec("float32", (2, 2), (2, 1)), TensorSpec("uint8", (2,), (1,))
INPUTS = torch.ones(2, 2), torch.ones(2, dtype=torch.uint8)


def plan(operator, count):
    """A plan with so many calls of an operator that warns each time."""
    calls = {
        "var": lambda i: Call("aten::var.correction", (Slot(1), ListArg((Literal(0),))), {"correction": Literal(2)}, (i + 1,)),
        "index_put": lambda i: Call("aten::index_put", (Slot(i), ListArg((Slot(0),)), Slot(1)), {}, (i + 1,)),
    }
    steps = tuple(map(calls[operator], range(1, count + 1)))
    return Plan(operator, count + 2, (TensorInput(1, SQUARE), TensorInput(0, MASK)), (SlotOutput(count + 1),), steps)


def told(function, *args):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function(*args)
    return [(each.category, str(each.message)) for each in found]


EAGER = {"var": lambda x, mask: x.var(0, correction=2), "index_put": lambda x, mask: x.index_put((mask,), x)}


@pytest.mark.parametrize("operator", EAGER)
@pytest.mark.parametrize("count", [1, 3, 400])
def test_each_is_one_of_pythons(operator, count, store, capfd):
    run = bind(plan(operator, count), [], store)
    expected = told(EAGER[operator], *INPUTS) * count
    assert [told(run, *INPUTS) for _ in range(3)] == [expected] * 3  # a long plan releases the GIL from the second call on
    assert len(expected) == count and capfd.readouterr().err == ""


@pytest.mark.parametrize("operator", EAGER)
@pytest.mark.parametrize("count", [1, 400])
def test_one_that_is_an_error_ends_the_call(operator, count, store):
    run = bind(plan(operator, count), [], store)
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="degrees of freedom|uint8"):
                run(*INPUTS)
        assert len(told(run, *INPUTS)) == count
