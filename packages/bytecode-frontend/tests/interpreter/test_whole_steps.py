"""Training steps as one program: ``backward()``, clipping, the optimizer's step, ``zero_grad`` and the scheduler's step in captured
code."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from opmill_bytecode_frontend import Unsupported, capture

F = torch.nn.functional


class World:
    """What a program works on, made anew for each run: equal in all."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(4, 3, generator=generator)
        self.y = torch.tensor([0, 1, 1, 0])
        # No bias before the norm: its gradient is nothing but rounding, which some optimizers divide by its own size.
        self.model = nn.Sequential(nn.Linear(3, 5, bias=False), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2))
        self.a, self.b = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(3, 2))
        self.v = torch.arange(6.0).reshape(2, 3)
        for p in (*self.model.parameters(), self.a, self.b):
            p.data.copy_(torch.randn(p.shape, generator=generator))
        self.average = copy.deepcopy(self.model)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.sched = torch.optim.lr_scheduler.ConstantLR(self.opt, 1.0)
        self.seen: list = []

    def loss(self):
        return F.cross_entropy(self.model(self.x), self.y)

    def state(self):
        tensors = [*self.model.parameters(), *self.model.buffers(), *self.average.parameters(), self.a, self.b, self.v]
        tensors += [p.grad for p in (*self.model.parameters(), self.a, self.b)]
        tensors += [v for p in self.model.parameters() for v in self.opt.state.get(p, {}).values()]
        rates = [group["lr"] for group in self.opt.param_groups]
        return copied([tensors, rates, self.sched.__dict__.get("last_epoch"), self.seen])


def copied(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return [copied(each) for each in value] if isinstance(value, (list, tuple)) else value


def check_same(ours, theirs, atol=1e-5) -> None:
    if isinstance(theirs, torch.Tensor):
        assert ours.requires_grad == theirs.requires_grad and ours.stride() == theirs.stride()
        rtol = 1.3e-6 if theirs.dtype == torch.float32 else 1e-7 if theirs.is_floating_point() else 0
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol if rtol else 0)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            check_same(mine, other, atol)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs)
    else:
        assert ours == theirs


def outcome(fn, world):
    try:
        return copied(fn(world))
    except Exception as exc:
        return type(exc).__name__, str(exc)


# ---- programs that are whole -------------------------------------------------------------------------------------------


def adds_up(w):
    loss = w.loss()
    loss.backward()
    return loss


def graph_kept(w):
    loss = w.loss()
    loss.backward(retain_graph=True)
    loss.backward()
    return loss.detach()


def used_up(w):
    loss = w.loss()
    loss.backward()
    loss.backward()


def no_scalar(w):
    w.model(w.x).backward()


def nothing_to_differentiate(w):
    with torch.no_grad():
        loss = w.loss()
    loss.backward()


def gradient_given(w):
    w.model(w.x).backward(w.x[:, :2] * 2)


def several_outputs(w):
    torch.autograd.backward([w.a.sum(), (w.b * 2).sum()])


def chosen_inputs(w):
    w.loss().backward(inputs=[w.model[0].weight])


def cleared_before(w):
    w.opt.zero_grad()
    w.loss().backward()


def filled_with_zeros(w):
    w.opt.zero_grad(set_to_none=False)
    w.loss().backward()


def same_gradient_twice(w):
    w.a.grad = w.b.grad = None
    (w.a + w.b.view(2, 3)).backward(w.v)
    w.a.grad.mul_(2)


def expanded_gradient(w):
    w.a.grad = None
    w.a.sum().backward()


def parts_of_one(w):
    torch.cat([w.a.flatten(), w.b.flatten()]).pow(2).sum().backward()


def leaf_made_inside(w):
    z = torch.ones(4, 3, requires_grad=True)
    w.model(z).pow(2).sum().backward()
    z.grad.mul_(2)
    return z.grad + 1


def used_history_returned(w):
    hidden = w.model(w.x)
    hidden.pow(2).sum().backward()
    return hidden


def by_hand(w):
    w.model.zero_grad()
    w.loss().backward()
    with torch.no_grad():
        for p in w.model.parameters():
            p -= 0.1 * p.grad
    return w.model[0].weight.sum().detach()


def whole_step(w):
    loss = w.loss()
    loss.backward()
    nn.utils.clip_grad_norm_(w.model.parameters(), 0.5)
    w.opt.step()
    w.opt.zero_grad()
    w.sched.step()
    return loss.detach()


def accumulated(w):
    for k in range(3):
        (F.cross_entropy(w.model(w.x * k), w.y) / 3).backward()
    w.opt.step()
    w.opt.zero_grad()


def two_steps(w):
    for k in range(2):
        F.cross_entropy(w.model(w.x * k), w.y).backward()
        w.opt.step()
        w.opt.zero_grad()


def averaged(w):
    w.loss().backward()
    w.opt.step()
    w.opt.zero_grad()
    with torch.no_grad():
        for ours, theirs in zip(w.average.parameters(), w.model.parameters(), strict=True):
            ours.lerp_(theirs, 0.1)


def rate_set_before(w):
    w.seen.append(len(w.seen))
    for group in w.opt.param_groups:
        group["lr"] = 0.1 / len(w.seen)
    w.loss().backward()
    w.opt.step()
    w.opt.zero_grad()


def rate_read_behind(w):
    before = w.opt.param_groups[0]
    first = before["lr"]
    w.loss().backward()
    w.opt.step()
    w.sched.step()
    return [first, before["lr"], w.sched.get_last_lr()[0], w.sched.last_epoch]


def state_read_behind(w):
    w.loss().backward()
    w.opt.step()
    return len(w.opt.state), w.model[0].weight.norm().detach()


def with_closure(w):
    def closure():
        w.opt.zero_grad()
        loss = w.loss()
        loss.backward()
        return loss

    return w.opt.step(closure).detach()


def under_autocast(w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = w.model(w.x).float().pow(2).mean()
    loss.backward()
    w.opt.step()


WHOLE = [
    adds_up, graph_kept, used_up, no_scalar, nothing_to_differentiate, gradient_given, several_outputs, chosen_inputs, cleared_before,
    filled_with_zeros, same_gradient_twice, expanded_gradient, parts_of_one, leaf_made_inside, used_history_returned, by_hand, whole_step,
    accumulated, two_steps, averaged, rate_set_before, rate_read_behind, state_read_behind, with_closure, under_autocast,
]  # fmt: skip


@pytest.mark.parametrize("program", WHOLE, ids=lambda f: f.__name__)
def test_steps_are_whole_and_right(program):
    ours, theirs = World(), World()
    compiled = capture(program, "eager", fullgraph=True)
    for _ in range(3):
        check_same(outcome(compiled, ours), outcome(program, theirs))
        check_same(ours.state(), theirs.state())


def test_a_history_that_is_used_up_stays_so_behind_the_graph():
    compiled = capture(adds_up, "eager", fullgraph=True)
    loss = compiled(World())
    assert loss.requires_grad and not loss.is_leaf
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_gradients_are_laid_out_as_their_leaves():
    leaf = nn.Parameter(torch.randn(4, 3).t())

    def fn(x):
        leaf.grad = None
        (x @ leaf).pow(2).sum().backward()

    capture(fn, "eager", fullgraph=True)(torch.randn(5, 3))
    assert leaf.grad.stride() == leaf.stride()


# ---- optimizers and schedulers -------------------------------------------------------------------------------------------

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {}), ("AdamW", {"maximize": True}), ("NAdam", {}), ("Muon", {}), ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("Adagrad", {"lr_decay": 0.1}), ("Adadelta", {}), ("Adamax", {}), ("Rprop", {}), ("ASGD", {}), ("RAdam", {}), ("Adafactor", {}),
]  # fmt: skip


def made(name, options, of):
    return getattr(torch.optim, name)([p for p in of.parameters() if p.dim() == 2 or name != "Muon"], **options)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_steps_of_optimizers(name, options):
    def step(w):
        w.loss().backward()
        w.opt.step()
        w.opt.zero_grad()
        w.sched.step()

    ours, theirs = World(), World()
    for w in (ours, theirs):  # in float64: differences of rounding, which some optimizers enlarge, are no differences
        w.model.double()
        w.x = w.x.double()
        w.opt = made(name, options, w.model)
        w.sched = torch.optim.lr_scheduler.CosineAnnealingLR(w.opt, 20)
    compiled = capture(step, "eager", fullgraph=True)
    for _ in range(7):  # RAdam goes another way from its sixth step on
        compiled(ours)
        step(theirs)
        check_same(ours.state(), theirs.state(), atol=1e-4 if name == "Muon" else 1e-9)  # Muon multiplies matrices in bfloat16


@pytest.mark.parametrize("name", ["AdamW", "NAdam"])
def test_what_torchs_own_compiler_disabled_for_itself_is_read(name, monkeypatch):
    """It does so to every optimizer when it is imported, whoever imports it."""
    kind = getattr(torch.optim, name)
    own = kind._init_group

    def disabled(*args, **kwargs):
        return own(*args, **kwargs)

    disabled._torchdynamo_disable, disabled._torchdynamo_orig_callable = True, own
    monkeypatch.setattr(kind, "_init_group", disabled)
    test_steps_of_optimizers(name, {})


SCHEDULERS = [
    lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
    lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda k: 1 / (1 + k)),
    lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=30),
    lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
    lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.ConstantLR(o, 0.1, 2), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]
    ),
]


@pytest.mark.parametrize("make", SCHEDULERS)
def test_schedulers_cost_one_capture_at_most(make):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    ours, theirs = World(), World()
    for w in (ours, theirs):
        w.sched = make(w.opt)
    compiled = capture(whole_step, backend, fullgraph=True)
    for _ in range(8):
        check_same(outcome(compiled, ours), outcome(whole_step, theirs))
        check_same(ours.state(), theirs.state())
    assert len(graphs) <= 3  # without momentum yet, with a number as rate, with any rate


def test_a_plateau_is_told_numbers_of_the_graph():
    def fn(w):
        loss = w.loss()
        loss.backward()
        w.opt.step()
        w.opt.zero_grad()
        w.sched.step(loss.item())

    ours, theirs = World(), World()
    for w in (ours, theirs):
        w.sched = torch.optim.lr_scheduler.ReduceLROnPlateau(w.opt, patience=0, threshold=10.0)
    compiled = capture(fn, "eager")
    for _ in range(4):
        compiled(ours)
        fn(theirs)
        check_same(ours.state(), theirs.state())


# ---- what ends the graph ---------------------------------------------------------------------------------------------------


def hooked(w):
    w.model[0].weight.register_hook(lambda g: g * 2)


def told_when_there(w):
    w.model[0].weight.register_post_accumulate_grad_hook(lambda p: w.seen.append(float(p.grad.sum())))


@pytest.mark.parametrize("hook", [hooked, told_when_there])
@pytest.mark.parametrize("late", [False, True])
def test_hooks_on_leaves_run(hook, late):
    ours, theirs = World(), World()
    compiled = capture(cleared_before, "eager")
    for turn in range(3):
        if turn == late:
            hook(ours), hook(theirs)
        compiled(ours)
        cleared_before(theirs)
        check_same(ours.state(), theirs.state())


def test_gradients_that_are_differentiated_are_autograds():
    def fn(w):
        w.loss().backward(create_graph=True)
        return sum(p.grad.pow(2).sum() for p in w.model.parameters())

    ours, theirs = World(), World()
    with pytest.raises(Unsupported, match="FE033"):
        capture(fn, "eager", fullgraph=True)(ours)
    with pytest.warns(UserWarning, match="reference cycle"):
        check_same(copied(capture(fn, "eager")(ours).detach()), copied(fn(theirs).detach()))


def test_what_was_computed_before_is_reached():
    leaf = torch.ones(3, requires_grad=True)
    before = leaf * 2

    def fn():
        (before * 3).sum().backward(retain_graph=True)

    capture(fn, "eager")()
    assert leaf.grad.tolist() == [6.0] * 3


class Standing:
    """A backend with its own step for optimizers."""

    def __init__(self) -> None:
        self.graphs, self.steps = 0, 0

    def __call__(self, gm, inputs):
        self.graphs += 1
        return gm.forward

    def stand_in(self, function):
        if not getattr(function, "hooked", False) or "SGD" not in function.__qualname__:
            return None

        def step(optimizer, *args):
            self.steps += 1
            return function(optimizer, *args)

        return step


STANDING = [whole_step, accumulated, rate_set_before, rate_read_behind, state_read_behind, two_steps, averaged, with_closure]


@pytest.mark.parametrize("program", STANDING, ids=lambda f: f.__name__)
def test_a_step_of_the_backends_own_comes_behind_the_graph(program):
    backend = Standing()
    ours, theirs = World(), World()
    compiled = capture(program, backend, fullgraph=True)
    for _ in range(4):
        check_same(outcome(compiled, ours), outcome(program, theirs))
        check_same(ours.state(), theirs.state())
    if program in (whole_step, accumulated, rate_read_behind):
        assert backend.steps == 4 and backend.graphs <= 3


def test_where_there_are_many_parameters_the_graph_ends_behind_their_step():
    backend, found = Standing(), []
    ours, theirs = World(), World()
    for w in (ours, theirs):
        generator = torch.Generator().manual_seed(1)
        layers = [nn.Linear(3, 3) for _ in range(20)]
        for p in (p for layer in layers for p in layer.parameters()):
            p.data.copy_(torch.randn(p.shape, generator=generator) / 3)
        w.model = nn.Sequential(*layers)
        w.average = copy.deepcopy(w.model)
        w.opt = torch.optim.SGD(w.model.parameters(), lr=0.01)
    compiled = capture(averaged, backend, on_break=found.append)
    for _ in range(3):
        compiled(ours)
        averaged(theirs)
        check_same(ours.state(), theirs.state())
    assert backend.steps == 3 and "FE036" in {each.code for each in found}
