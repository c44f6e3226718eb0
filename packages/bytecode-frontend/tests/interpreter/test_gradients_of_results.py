"""Gradients with respect to what captured code computed, with breaks anywhere: to autograd, a graph is one step, whose results do not know
each other."""

from __future__ import annotations

import pytest
import torch

from opmill_bytecode_frontend import capture


class Step(torch.autograd.Function):
    """A whole graph as one step of autograd, as compiled graphs are."""

    @staticmethod
    def forward(ctx, gm, *inputs):
        with torch.enable_grad():
            own = [x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in inputs]
            given = gm.forward(*own)
        ctx.own, ctx.given = own, given
        made = tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in given)
        ctx.mark_non_differentiable(*(m for m, t in zip(made, given, strict=True) if isinstance(t, torch.Tensor) and not t.requires_grad))
        ctx.set_materialize_grads(False)
        return made

    @staticmethod
    def backward(ctx, *gradients):
        known = [(t, g) for t, g in zip(ctx.given, gradients, strict=True) if g is not None]
        wanted = [x for x in ctx.own if isinstance(x, torch.Tensor) and x.requires_grad]
        results, given = zip(*known, strict=True)
        found = iter(torch.autograd.grad(results, wanted, given, allow_unused=True, retain_graph=True))
        return None, *(next(found) if isinstance(x, torch.Tensor) and x.requires_grad else None for x in ctx.own)


def as_one_step(gm, example_inputs):
    return lambda *inputs: Step.apply(gm, *inputs)


def assigned(tensor):
    tensor.requires_grad = True
    return tensor


def kept(tensor):
    tensor.retain_grad()
    return tensor


MADE = {
    "a copy": lambda w: w.clone().requires_grad_(),
    "said so": lambda w: (w * 2).requires_grad_(True),
    "a view": lambda w: w.view(3).requires_grad_(),
    "computed": lambda w: w * 2,
    "kept": lambda w: kept(w * 2),
    "detached": lambda w: w.detach().requires_grad_(),
    "detached copy": lambda w: w.detach().clone().requires_grad_(),
    "fresh": lambda w: torch.ones(3, requires_grad=True),
    "assigned": lambda w: assigned(w.detach().clone()),
    "assigned to what is computed": lambda w: assigned(w.clone()),
    "assigned to numbers": lambda w: assigned(torch.zeros(3, dtype=torch.int64)),
    "a parameter": lambda w: torch.nn.Parameter(w.detach().clone()),
    "given": lambda w: w.requires_grad_(),
}
USES = {
    "grad": lambda y, p: torch.autograd.grad(y, p, allow_unused=True),
    "grad of several": lambda y, p: torch.autograd.grad([y, y * 2], [p], [torch.ones_like(y), torch.ones_like(y)], allow_unused=True),
    "backward": lambda y, p: (y.backward(), p.grad if p.is_leaf or p.retains_grad else None),
    "inputs": lambda y, p: (torch.autograd.backward(y, inputs=[p]), p.grad),
    "an input": lambda y, p: (y.backward(inputs=p), p.grad),
    "no inputs": lambda y, p: (y.backward(inputs=[]), p.grad),
}
BREAKS = ("nowhere", "before", "behind")
KNOWN = {("computed", use, "behind") for use in ("grad", "grad of several", "inputs", "an input")}
"""What nothing says of, until it is too late: results of one graph."""


def program(make, use, place):
    def f(w, x):
        p = make(w)
        if place == "before":
            torch._dynamo.graph_break()
        y = (p * x * p).sum()
        if place == "behind":
            torch._dynamo.graph_break()
        return use(y, p)

    return f


def outcome(call):
    w, x = torch.ones(3, requires_grad=True), torch.arange(3.0)
    try:
        return repr((call(w, x), w.grad))
    except RuntimeError as exc:
        return str(exc)


@pytest.mark.parametrize("backend", ["eager", as_one_step], ids=["eager", "one step"])
@pytest.mark.parametrize("place", BREAKS)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("made", MADE)
def test_gradients_are_those_of_eager(made, use, place, backend):
    if backend is as_one_step and (made, use, place) in KNOWN:
        pytest.skip("results of one graph do not know each other")
    f = program(MADE[made], USES[use], place)
    want, compiled = outcome(f), capture(f, backend)
    assert [outcome(compiled), outcome(compiled)] == [want, want]


def test_a_graph_that_differentiates_itself_stays_one():
    graphs = []

    def counted(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    def f(w):
        p = w.clone().requires_grad_()
        return torch.autograd.grad((p * p).sum(), p)

    w = torch.ones(3, requires_grad=True)
    assert capture(f, counted, fullgraph=True)(w)[0].tolist() == f(w)[0].tolist() == [2.0, 2.0, 2.0]
    assert len(graphs) == 1


def parts(w):
    first, second = (w * 2).chunk(2)
    with torch.no_grad():
        first.add_(1)
    return second, w


def test_one_of_several_views_that_were_written_to_leaves():
    want, got = (call(torch.ones(4, requires_grad=True)) for call in (parts, capture(parts, "eager", fullgraph=True)))
    assert [t.tolist() for t in want] == [t.tolist() for t in got]
