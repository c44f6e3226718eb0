"""Functions that write to lists of tensors, all that torch has, in all forms that they take: the list that they give, the tensors in it and
what else lies in their memory, how often they were written to, gradients."""

import pytest
import torch

from opmill_bytecode_frontend import capture

NAMES = [name for name in dir(torch) if name.startswith("_foreach_") and name.endswith("_")]
NUMBERS = [1.0, 2.0, 3.0]
FORMS = {
    "alone": lambda xs, ys, zs: (xs,),
    "number": lambda xs, ys, zs: (xs, 0.5),
    "list": lambda xs, ys, zs: (xs, ys),
    "numbers": lambda xs, ys, zs: (xs, NUMBERS),
    "tensor": lambda xs, ys, zs: (xs, torch.tensor(2.0)),
    "list, number": lambda xs, ys, zs: (xs, ys, 0.5),
    "list, numbers": lambda xs, ys, zs: (xs, ys, NUMBERS),
    "lists": lambda xs, ys, zs: (xs, ys, zs),
    "lists, number": lambda xs, ys, zs: (xs, ys, zs, 0.5),
    "lists, numbers": lambda xs, ys, zs: (xs, ys, zs, NUMBERS),
}


def three():
    return [torch.tensor([1.0, 4.0, 9.0]), torch.tensor([[0.25, 0.5]]), torch.tensor(2.0)]


def taken(name):
    """The forms of arguments that a function takes."""
    for form, arguments in FORMS.items():
        try:
            getattr(torch, name)(*arguments(three(), three(), three()))
        except (TypeError, RuntimeError):
            continue
        yield form, arguments


def seen(program, inputs):
    try:
        found = program(*inputs)
    except RuntimeError as error:
        return type(error), str(error)
    return found, [(x, x._version) for x in inputs]


def programs(function, arguments):
    def given(*ts):
        xs = list(ts[:3])
        found = function(*arguments(xs, list(ts[3:6]), list(ts[6:])))
        return found is xs, [a is b for a, b in zip(found, xs)], [x._version for x in xs], [x * 1 for x in xs]

    def in_a_tuple(*ts):
        xs = ts[:3]
        found = function(*arguments(xs, ts[3:6], ts[6:]))
        return type(found), [a is b for a, b in zip(found, xs)]

    def views(*ts):
        base = torch.cat([t.reshape(-1) for t in ts[:3]])
        xs = [base[:3], base[3:5].reshape(1, 2), base[5]]
        function(*arguments(xs, list(ts[3:6]), list(ts[6:])))
        return base, xs, base._version

    def twice(*ts):
        xs = [ts[0], ts[0][:], ts[2]]
        function(*arguments(xs, [ts[3], ts[3], ts[5]], [ts[6], ts[6], ts[8]]))
        return xs

    def gradients(*ts):
        xs = [t * 1 for t in ts[:3]]
        function(*arguments(xs, list(ts[3:6]), list(ts[6:])))
        return torch.autograd.grad(sum(x.sum() for x in xs), ts[:6], allow_unused=True)

    return [(given, False), (in_a_tuple, False), (views, False), (twice, False), (gradients, True), (given, True)]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_to_lists(name):
    for form, arguments in taken(name):
        for program, grad in programs(getattr(torch, name), arguments):
            inputs = [[t.requires_grad_(grad) for t in three() + three()] + three() for _ in range(2)]
            expected, found = seen(program, inputs[0]), seen(capture(program, "eager"), inputs[1])
            assert repr(found) == repr(expected), (form, program.__name__, grad)
