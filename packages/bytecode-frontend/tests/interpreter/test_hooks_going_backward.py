"""Hooks and functions of autograd in programs that go backward themselves, and handles of hooks that programs keep."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from conftest import same
from opmill_bytecode_frontend import capture


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0] * grad


class Passed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Turned(torch.autograd.Function):
    """Its gradient lies in memory as its argument does not."""

    @staticmethod
    def forward(ctx, x):
        return x.t()

    @staticmethod
    def backward(ctx, grad):
        return grad.t()


def hooked(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    (y * y).sum().backward()


def hooked_and_kept(x):
    y = x * 2
    handle = y.register_hook(lambda grad: grad * 3)
    (y * y).sum().backward()
    return handle is None


def function(x):
    Tripled.apply(x * 2).sum().backward()


def passed(x):
    Passed.apply(x).sum().backward()
    x.grad.add_(1)


def several(x):
    (Passed.apply(x * 1) + Passed.apply(x)).sum().backward()
    Tripled.apply(x).sum().backward()


def turned(x):
    (Turned.apply(x) * torch.arange(12.0).reshape(4, 3)).sum().backward()


def asked(x):
    return torch.autograd.grad(Tripled.apply(x).sum(), x)


@pytest.mark.parametrize("program", [hooked, hooked_and_kept, function, passed, several, turned, asked], ids=lambda f: f.__name__)
def test_backward_inside_is_a_part_of_the_graph(program):
    compiled = capture(program, "eager", fullgraph=True)
    for k in range(3):
        results = []
        for f in (program, compiled):
            x = torch.arange(12.0).reshape(3, 4).add(k).requires_grad_()
            results.append((f(x), x.grad))
        assert same(*results)


def created(x):
    [grad] = torch.autograd.grad(Tripled.apply(x).sum(), x, create_graph=True)
    return torch.autograd.grad(grad.sum(), x)[0]


def test_gradients_that_are_differentiated_themselves_are_what_the_program_gives():
    x = torch.arange(4.0).requires_grad_()
    assert same(created(x), capture(created)(x))


WEIGHT = torch.ones(3, requires_grad=True)


class Holder:
    handle: Any = None


def returned(x):
    return (x * WEIGHT).sum(), [WEIGHT.register_hook(lambda grad: grad * 3)]


def both(x):
    first, second = WEIGHT.register_hook(lambda grad: grad * 3), WEIGHT.register_hook(lambda grad: grad + 1)
    return (x * WEIGHT).sum(), [first, second]


def the_later_first(x):
    first, second = WEIGHT.register_hook(lambda grad: grad * 3), WEIGHT.register_hook(lambda grad: grad + 1)
    return (x * WEIGHT).sum(), [second, first]


def held(x):
    Holder.handle = WEIGHT.register_hook(lambda grad: grad * 3)
    return (x * WEIGHT).sum(), [Holder.handle]


def enlarge(tensor):
    tensor.grad.mul_(5)


def accumulated(x):
    return (x * WEIGHT).sum(), [WEIGHT.register_post_accumulate_grad_hook(enlarge)]


def removed(x):
    handle = WEIGHT.register_hook(lambda grad: grad * 3)
    handle.remove()
    return (x * WEIGHT).sum(), [handle]


def gradients(loss):
    WEIGHT.grad = None
    loss.backward()
    found, WEIGHT.grad = WEIGHT.grad, None
    return found


@pytest.mark.parametrize("program", [returned, both, the_later_first, held, accumulated, removed], ids=lambda f: f.__name__)
def test_handles_that_are_kept_remove_their_hooks(program):
    compiled = capture(program, "eager", fullgraph=program in (returned, both, held, accumulated))
    for _ in range(2):
        results = []
        for f in (program, compiled):
            loss, handles = f(torch.full((3,), 2.0))
            found = [gradients(loss)]
            for handle in handles:
                assert type(handle) is torch.utils.hooks.RemovableHandle
                handle.remove()
                found.append(gradients((WEIGHT * 2).sum()))
            results.append(found)
        assert same(*results)
