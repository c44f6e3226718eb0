"""A ``torch.autograd.Function`` whose backward goes backward itself: implicit functions, fixed points, checkpoints."""

from __future__ import annotations

import logging

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from opmill_bytecode_frontend import capture


class Root(Function):
    """The x at which f(x) is y."""

    @staticmethod
    def forward(ctx, f, y, *more):
        x = y * 0.5
        for _ in range(3):
            x = x - (f(x) - y) * 0.2
        ctx.f = f
        ctx.save_for_backward(x, *more)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, *more = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = ctx.f(x)
        slope = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)[0]
        return None, grad / slope, *torch.autograd.grad(y, more, -grad / slope)


class Again(Function):
    """Computes once more what it goes back through."""

    @staticmethod
    def forward(ctx, f, x):
        ctx.f = f
        ctx.save_for_backward(x)
        with torch.no_grad():
            return f(x)

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            y = ctx.f(x)
        return None, torch.autograd.grad(y, x, grad)[0]


def root(y, w):
    return Root.apply(lambda x: x * w.exp() + x.tanh(), y, w)


PROGRAMS = {
    "a root": root,
    "a root of a root": lambda y, w: root(root(y, w) * 0.5, w),
    "again": lambda y, w: Again.apply(torch.sin, y * w),
    "again and again": lambda y, w: Again.apply(lambda x: Again.apply(torch.sin, x) * 2, y * w),
    "a root computed again": lambda y, w: Again.apply(lambda x: root(x, w), y) * w,
    "two": lambda y, w: root(y, w) + Again.apply(torch.cos, y * w),
}
WAYS = {
    "behind the call": lambda f, y, w: f(y, w).sin().sum(),
    "within": lambda f, y, w: (out := f(y, w).sin().sum(), out.backward())[0],
    "asked for": lambda f, y, w: torch.autograd.grad(f(y, w).sin().sum(), (y, w)),
    "by a penalty": lambda f, y, w: sum(each.square().sum() for each in torch.autograd.grad(f(y, w).sin().sum(), (y, w))),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name, way, caplog):
    caplog.set_level(logging.DEBUG, "opmill.internal")

    def whole(y, w):
        return WAYS[way](PROGRAMS[name], y, w)

    def run(f):
        y, w = torch.linspace(0, 1, 3).requires_grad_(), torch.tensor([0.3, -0.2, 0.5], requires_grad=True)
        found = [f(y, w) for _ in range(2)]
        if way == "behind the call":
            found[0].backward()
        return *(each if isinstance(each, tuple) else (each,) for each in found), y.grad, w.grad

    torch.testing.assert_close(run(capture(whole, "eager")), run(whole))
    assert not [each for each in caplog.records if each.exc_info and isinstance(each.exc_info[1], RecursionError)]
