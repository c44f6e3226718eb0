"""Graphs that begin without gradients and turn them on: what follows a break in a ``no_grad`` block, and ``enable_grad`` inside of
``no_grad``."""

import pytest
import torch
from training_cases import Of

SWITCH = torch._C._set_grad_enabled
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)


class Switching(Of):
    """``fn`` may call ``m.switch``."""

    switch = staticmethod(SWITCH)


def recorded(module):
    """The module's graph, with its switches as nodes."""
    tracer = torch.fx.Tracer()
    module.switch = lambda on: tracer.create_proxy("call_function", SWITCH, (on,), {})
    graph = tracer.trace(module)
    del module.switch
    return torch.fx.GraphModule(module, graph)


def at_once(m, x):
    m.switch(True)
    return (x @ m.w).sin()


def behind_something(m, x):
    mean = (x * m.b).mean()
    m.switch(True)
    return (x @ m.w) * mean, mean


def off_again(m, x):
    m.switch(True)
    y = (x @ m.w).tanh()
    m.switch(False)
    return y, y * m.b


def on_and_off_and_on(m, x):
    m.switch(True)
    y = x * m.b
    m.switch(False)
    scale = y.abs().max()
    m.switch(True)
    return (y / scale).view(-1), y, scale


def views_and_writes(m, x):
    kept = x.clone()
    m.switch(True)
    y = kept * m.b
    y.select(0, 0).copy_(x.select(0, 1))
    return y.t(), y, kept


def gradients(call, module, inputs):
    with torch.no_grad():
        out = call(*inputs)
        SWITCH(False)
    outs = out if isinstance(out, tuple) else (out,)
    wanted = [*inputs, *module.parameters()]
    first = torch.autograd.grad(sum(o.pow(2).sum() for o in outs if o.requires_grad), wanted, create_graph=True, allow_unused=True)
    second = torch.autograd.grad(sum(g.pow(2).sum() for g in first if g is not None and g.requires_grad), wanted, allow_unused=True)
    return [*outs, torch.tensor([o.requires_grad for o in outs]), *first, *second]


@pytest.mark.parametrize("fn", [at_once, behind_something, off_again, on_and_off_and_on, views_and_writes])
def test_gradients_are_those_of_eager(fn, twins):
    with torch.no_grad():
        pair = twins(Switching(fn), X, gm=recorded)
    pair.same(gradients, X)


def nothing_behind(m, x):
    y = x @ m.w
    m.switch(True)
    return y


def test_graphs_that_need_no_gradients_have_none(twins):
    with torch.no_grad():
        pair = twins(Switching(nothing_behind), X, gm=recorded)
        assert not pair.call(X).requires_grad and len(pair.compiled.plan.inputs) == 2 and not hasattr(pair.compiled.executable, "layout")
    with torch.inference_mode():  # where no switch turns gradients on
        pair = twins(Switching(at_once), X, gm=recorded)
        assert not pair.call(X).requires_grad


def test_the_mode_after_a_call_is_that_before(twins):
    with torch.no_grad():
        pair = twins(Switching(at_once), X, gm=recorded)
        assert pair.call(X).requires_grad and not torch.is_grad_enabled()
