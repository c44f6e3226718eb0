"""Backwards that read what the program changes between the call and `backward()` take what it is by then, as in eager."""

import pytest
import torch

from opmill_bytecode_frontend import capture

SCALE = 2.0
UNCHANGED = 3.0


class OfGlobal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * SCALE

    @staticmethod
    def backward(ctx, g):
        return g * SCALE * UNCHANGED


class OfClass(torch.autograd.Function):
    factor = 2.0

    @staticmethod
    def forward(ctx, x):
        return x * OfClass.factor

    @staticmethod
    def backward(ctx, g):
        return g * OfClass.factor


class Unsaved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.w, ctx.result = w, x * w
        return ctx.result.view_as(w)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.w + ctx.result, None


class Constant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.inside = x.exp()
        return ctx.inside * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.inside * UNCHANGED


def of_a_variable():
    factor = 2.0

    class OfVariable(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * factor

        @staticmethod
        def backward(ctx, g):
            return g * factor

    def change(value):
        nonlocal factor
        factor = value

    return OfVariable, change


def change_global(value):
    global SCALE
    SCALE = value


def change_class(value):
    OfClass.factor = value


OfVariable, change_variable = of_a_variable()
CASES = {
    "global": (lambda x, w: OfGlobal.apply(x.cos()).sin(), lambda value, w, y: change_global(value)),
    "class": (lambda x, w: OfClass.apply(x.cos()).sin(), lambda value, w, y: change_class(value)),
    "variable": (lambda x, w: OfVariable.apply(x.cos()).sin(), lambda value, w, y: change_variable(value)),
    "argument": (lambda x, w: Unsaved.apply(x.cos(), w).sin(), lambda value, w, y: w.mul_(value)),
    "view": (lambda x, w: Unsaved.apply(x.cos(), w[:]).sin(), lambda value, w, y: w.mul_(value)),
    "result": (lambda x, w: Unsaved.apply(x.cos(), w + 1).detach().requires_grad_() * x, lambda value, w, y: y.data.mul_(value)),
    "both": (lambda x, w: OfGlobal.apply(Unsaved.apply(x, w * 1)), lambda value, w, y: (change_global(value), w.zero_())),
}


@pytest.mark.parametrize("backend", ["eager", lambda gm, _: gm])
@pytest.mark.parametrize("case", CASES)
def test_take_what_is_there_when_they_run(case, backend):
    function, change = CASES[case]

    def gradients(call):
        for value in (2.0, 3.0, 5.0, 3.0):
            x, w = torch.ones(3, requires_grad=True), torch.full((3,), 2.0)
            y = call(x, w)
            change(value, w, y)
            y.sum().backward()
            yield x.grad.tolist()

    change_global(2.0), change_class(2.0), change_variable(2.0)
    wanted = list(gradients(function))
    change_global(2.0), change_class(2.0), change_variable(2.0)
    assert list(gradients(capture(function, backend))) == wanted


def test_what_nobody_changes_ends_no_graph():
    x, breaks = torch.ones(3, requires_grad=True), []
    capture(lambda x: Constant.apply(x).sin(), "eager", on_break=breaks.append)(x).sum().backward()
    assert not breaks
