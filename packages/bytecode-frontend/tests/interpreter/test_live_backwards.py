"""Backwards that read what the program changes between the call and `backward()` take what it is by then, as in eager."""

import pytest
import torch

from opmill_bytecode_frontend import capture

SCALE = 2.0
UNCHANGED = 3.0
TYPES = {torch.float32, torch.bfloat16}
FACTORS = {torch.float32: 2.0, "ours": [3.0]}
NAMES = ["a", "b"]
KNOWN = {torch.float32: 2.0, torch.float64: 3.0}
CALLED = ["a"]


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


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2


class OfSet(Doubled):
    @staticmethod
    def backward(ctx, g):
        return g * (2 if g.dtype in TYPES else 5)


class OfDict(Doubled):
    @staticmethod
    def backward(ctx, g):
        return g * FACTORS[g.dtype] + FACTORS["ours"][0]


class OfList(Doubled):
    @staticmethod
    def backward(ctx, g):
        return g * len(NAMES)


class OfTables(Doubled):
    @staticmethod
    def backward(ctx, g):
        return g * KNOWN[g.dtype] if g.dtype in KNOWN and "a" in CALLED and len(CALLED) == 1 else g


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


def change_set(value):
    (TYPES.add if value == 2.0 else TYPES.discard)(torch.float32)


def change_dict(value):
    FACTORS[torch.float32] = value
    FACTORS["ours"][0] = value


def change_list(value):
    NAMES[:] = ["a"] * int(value)


OfVariable, change_variable = of_a_variable()
CASES = {
    "global": (lambda x, w: OfGlobal.apply(x.cos()).sin(), lambda value, w, y: change_global(value)),
    "class": (lambda x, w: OfClass.apply(x.cos()).sin(), lambda value, w, y: change_class(value)),
    "variable": (lambda x, w: OfVariable.apply(x.cos()).sin(), lambda value, w, y: change_variable(value)),
    "set": (lambda x, w: OfSet.apply(x.cos()).sin(), lambda value, w, y: change_set(value)),
    "dict": (lambda x, w: OfDict.apply(x.cos()).sin(), lambda value, w, y: change_dict(value)),
    "list": (lambda x, w: OfList.apply(x.cos()).sin(), lambda value, w, y: change_list(value)),
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

    start = (change_global, change_class, change_variable, change_set, change_dict, change_list)
    [change_to(2.0) for change_to in start]
    wanted = list(gradients(function))
    [change_to(2.0) for change_to in start]
    assert list(gradients(capture(function, backend))) == wanted


def test_what_nobody_changes_ends_no_graph():
    x, breaks = torch.ones(3, requires_grad=True), []
    capture(lambda x: Constant.apply(x).sin(), "eager", on_break=breaks.append)(x).sum().backward()
    assert not breaks


def test_tables_that_nobody_changes_end_no_graph():
    x, breaks = torch.ones(3, requires_grad=True), []
    capture(lambda x: OfTables.apply(x).sin(), "eager", on_break=breaks.append)(x).sum().backward()
    assert not breaks


def test_a_table_that_others_change_is_seen_when_the_backward_runs():
    x = torch.ones(3, requires_grad=True)
    y = capture(lambda x: OfTables.apply(x).sin(), "eager")(x)
    table = globals()["".join(["CALL", "ED"])]  # in a way that no look at the code finds
    table.append("b")
    try:
        with pytest.raises(RuntimeError, match="FE095: CALLED"):
            y.sum().backward()
    finally:
        table.pop()
