"""Tensors that captured code makes in inference mode: what leaves it is such a tensor, and what eager refuses with one is refused."""

import copy

import pytest
import torch

from opmill_bytecode_frontend import capture

apart = torch.compiler.disable(lambda *_: None)


def made(x):
    with torch.inference_mode():
        return x * 3


USES = {
    "returned": lambda a, x: a,
    "a view": lambda a, x: (a[0], a.t(), a.view(-1)),
    "asked": lambda a, x: (a.is_inference(), a[0].is_inference(), (a + 1).is_inference(), x[0].is_inference()),
    "written": lambda a, x: a.add_(1),
    "a view of it written": lambda a, x: a[0].fill_(3),
    "an item written": lambda a, x: a.__setitem__(0, 1),
    "written as out": lambda a, x: torch.add(x.detach(), 1, out=a),
    "written by a list": lambda a, x: torch._foreach_add_([a], 1),
    "saved for a backward": lambda a, x: a * x,
    "added": lambda a, x: a + x.detach(),
    "copied from": lambda a, x: x.detach().clone().copy_(a),
    "cloned": lambda a, x: a.clone().add_(1),
    "asked to require grad": lambda a, x: a.requires_grad_(),
    "a parameter": lambda a, x: torch.nn.Parameter(a).requires_grad,
    "copied": lambda a, x: copy.deepcopy(a).is_inference(),
    "twice": lambda a, x: [a, {"a": a}, a * 2],
}


def described(value):
    if isinstance(value, torch.Tensor):
        return value.is_inference(), value.requires_grad, value.tolist(), value.stride(), value.untyped_storage().nbytes()
    if isinstance(value, dict):
        return {key: described(each) for key, each in value.items()}
    return type(value)(map(described, value)) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("name", USES)
def test_as_in_eager(name, broken, requires_grad):
    use = USES[name]

    def outside(x):
        a = made(x)
        if broken:
            apart(a)
        try:
            return use(a, x)
        except RuntimeError as error:
            return str(error), a

    def inside(x):
        with torch.inference_mode():
            a = x + 1
            if broken:
                apart(a)
            return use(a, x) if name not in ("asked to require grad",) else a

    for function in (outside, inside):
        compiled = capture(function, "eager")
        for _ in range(2):
            x = torch.arange(4.0).reshape(2, 2).requires_grad_(requires_grad)
            want = described(function(x.detach().clone().requires_grad_(requires_grad)))
            assert described(compiled(x)) == want


def test_views_of_others_are_no_such_tensors():
    def f(x, y):
        with torch.inference_mode():
            return x[0], x.t(), y[0], x.clone()

    x = torch.ones(2, 2)
    y = made(x)
    for _ in range(2):
        assert [t.is_inference() for t in capture(f, "eager", fullgraph=True)(x, y)] == [t.is_inference() for t in f(x, y)]
