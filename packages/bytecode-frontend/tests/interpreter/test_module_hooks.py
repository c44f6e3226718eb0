"""Hooks of modules that the backward calls: the call of such a module is made as it is, its forward is a graph; and gradients of what is no
leaf, which a program asks to be kept."""

from __future__ import annotations

import pytest
import torch

from conftest import same
from opmill_bytecode_frontend import capture

SEEN: list = []


def doubles(module, given, of_result):
    return tuple(None if g is None else g * 2 for g in given)


def tells(module, *gradients):
    SEEN.append([None if g is None else g.clone() for each in gradients for g in each])


def halves_before(module, of_result):
    return tuple(g / 2 for g in of_result)


def full(*hooks):
    return lambda model: [model[0].register_full_backward_hook(hook) for hook in hooks]


def before(*hooks):
    return lambda model: [model[2].register_full_backward_pre_hook(hook) for hook in hooks]


HOOKED = {
    "full": full(doubles),
    "full that tells": full(doubles, tells),
    "before": before(halves_before, tells),
    "both": lambda model: (full(tells)(model), before(halves_before)(model)),
    "of the whole": lambda model: model.register_full_backward_hook(doubles),
    "before, of the whole": lambda model: model.register_full_backward_pre_hook(halves_before),
    "in the old way": lambda model: model[2].register_backward_hook(tells),
    "in a module of a module": lambda model: model[1][0].register_full_backward_hook(tells),
    "taken off": lambda model: model[0].register_full_backward_hook(doubles).remove(),
}
MARKS = {"taken off": set()}


def trained(call, model, grad):
    SEEN.clear()
    found = []
    for _ in range(2):
        x = torch.linspace(-1, 2, 12).reshape(4, 3).requires_grad_(grad)
        y = call(x)
        y.square().sum().backward()
        found += [y.detach(), x.grad, [p.grad.clone() for p in model.parameters()]]
    return found, list(SEEN)


@pytest.mark.parametrize("grad", [False, True], ids=["no gradient of what goes in", "a gradient"])
@pytest.mark.parametrize("case", HOOKED)
@pytest.mark.filterwarnings("ignore")
def test_as_plainly(case, grad):
    torch.manual_seed(0)
    inner = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), inner, torch.nn.Linear(3, 2))
    HOOKED[case](model)

    def f(x):
        return model(x * 2) + 1

    breaks: list = []
    want = trained(f, model, grad)
    model.zero_grad()
    got = trained(capture(f, "eager", on_break=breaks.append), model, grad)
    assert same(want, got)
    assert {error.code for error in breaks} - {"FE066"} == MARKS.get(case, {"FE086"})

    x = torch.ones(4, 3)
    with torch.no_grad():
        assert same(f(x), capture(f, "eager", fullgraph=True)(x))  # there is no backward


def retained_inside(x):
    y = x * 2
    before = y.retains_grad
    y.retain_grad()
    z = y.t().sin()
    z.retain_grad()
    z.sum().backward(retain_graph=True)
    first = y.grad.clone()
    z.square().sum().backward()
    return first, y.grad, z.grad, before, y.retains_grad


def of_an_input(x):
    x.retain_grad()
    return x.sin()


def not_left(x):
    y = x.exp()
    y.retain_grad()
    return y.sin()


def left(x):
    y = x.exp()
    z = y * 2
    y.retain_grad()
    return y, z.sin()


def kept_by_a_list(x):
    kept = []
    for _ in range(3):
        x = x * 1.5
        x.retain_grad()
        kept.append(x)
    return kept


def written(x):
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    y.sin().sum().backward()
    return y.grad


def without_a_gradient(x):
    try:
        x.detach().retain_grad()
    except RuntimeError as error:
        return x * 2, str(error)


WHOLE = {retained_inside, of_an_input, not_left, written, without_a_gradient}


def kept(f, made):
    found = []
    for _ in range(2):
        leaf = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        x = made(leaf)
        results = f(x)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        open_ = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
        if open_:
            sum(r.sum() for r in open_).backward()
        retained = [t.grad for t in (x, *open_) if t.retains_grad]
        found.append((leaf.grad, retained, [r.detach() if isinstance(r, torch.Tensor) else r for r in results]))
    return found


@pytest.mark.parametrize("made", [lambda leaf: leaf, lambda leaf: leaf * 2], ids=["leaf", "computed"])
@pytest.mark.parametrize("f", [retained_inside, of_an_input, not_left, left, kept_by_a_list, written, without_a_gradient])
def test_gradients_are_kept(f, made):
    if f in (retained_inside, written) and made(torch.ones(1, requires_grad=True)).grad_fn is not None:
        pytest.skip("the backward leads out of the captured code")
    assert same(kept(f, made), kept(capture(f, "eager", fullgraph=f in WHOLE), made))
