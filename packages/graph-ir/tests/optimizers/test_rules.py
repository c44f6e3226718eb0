"""Update rules as kernels, interpreted, against the optimizers of torch."""

import copy

import pytest
import torch

from opmill_graph_ir.loops.evaluate import evaluate
from opmill_graph_ir.loops.spec import verify_kernel
from opmill_graph_ir.optimizers import update as module
from opmill_graph_ir.optimizers.kernels import update_kernel
from opmill_graph_ir.optimizers.rules import RULES
from opmill_graph_ir.optimizers.step import CompiledStep, has_rule, optimizer_of, stand_in
from opmill_graph_ir.optimizers.update import fits, is_dense

O = torch.optim
CASES = {
    "sgd": (O.SGD, {"lr": 0.1}),
    "sgd, decay": (O.SGD, {"lr": 0.1, "weight_decay": 0.2, "maximize": True}),
    "momentum": (O.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "nesterov": (O.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "adam": (O.Adam, {"lr": 0.1}),
    "adam, decay": (O.Adam, {"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-3}),
    "amsgrad": (O.Adam, {"lr": 0.1, "amsgrad": True, "maximize": True}),
    "adamw": (O.AdamW, {"lr": 0.1, "weight_decay": 0.3}),
    "adamw, foreach": (O.AdamW, {"lr": 0.1, "foreach": True}),
    "adamw, lr a tensor": (O.AdamW, {"lr": torch.tensor(0.1, dtype=torch.float64)}),
    "adagrad": (O.Adagrad, {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1}),
    "rmsprop": (O.RMSprop, {"lr": 0.01}),
    "rmsprop, all of it": (O.RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.9, "weight_decay": 0.1, "maximize": True}),
    "adadelta": (O.Adadelta, {"lr": 0.5, "weight_decay": 0.1}),
    "adadelta, foreach": (O.Adadelta, {"lr": 1.0, "maximize": True, "foreach": True}),
    "adamax": (O.Adamax, {"lr": 0.1, "eps": 1e-3, "weight_decay": 0.1}),
}


class Interpreted:
    """Stands for a plan: the kernels run in the interpreter of the loop IR."""

    def __init__(self, rule, flags, entries, *_):
        self.names = [list(entry) for entry in entries]
        self.kernels = []
        for entry in entries:
            made = update_kernel(RULES[rule], flags, {n: str(t.dtype).removeprefix("torch.") for n, t in entry.items()})
            verify_kernel(made.kernel)
            self.kernels.append(made)

    def __call__(self, numbers, *tensors):
        tensors = list(tensors)
        for names, made in zip(self.names, self.kernels, strict=True):
            entry = {n: tensors.pop(0) for n in names}
            flat = {n: t.as_strided((t.numel(),), (1,)) for n, t in entry.items()} | {"numbers": numbers}
            buffers = {b.name: flat[a] for b, a in zip(made.kernel.buffers, made.arguments, strict=True)}
            with torch.no_grad():
                assert evaluate(made.kernel, buffers, [entry["param"].numel() for _ in made.sizes]) == 0


@pytest.fixture
def interpreted(monkeypatch):
    monkeypatch.setattr(module, "build_update", Interpreted)


def compiled(optimizer):
    assert optimizer_of(optimizer.step) is optimizer
    return CompiledStep(optimizer, None, None, ["a generator"])


def twins(kind, dtype=torch.float32, **settings):
    torch.manual_seed(0)
    shapes = [(3, 2), (), (5,), (1, 4)]
    ours = [torch.nn.Parameter(torch.randn(s, dtype=dtype)) for s in shapes]
    ours.append(torch.nn.Parameter(torch.randn(2, 3, dtype=dtype).t()))  # dense, not contiguous
    theirs = copy.deepcopy(ours)
    return kind(ours, **settings), kind(theirs, **settings)


def parameters(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def give_gradients(*optimizers):
    for mine, other in zip(*map(parameters, optimizers), strict=True):
        mine.grad = torch.randn_like(mine)
        other.grad = mine.grad.clone()


def same(ours, theirs, **tolerance):
    for mine, other in zip(parameters(ours), parameters(theirs), strict=True):
        torch.testing.assert_close(mine, other, **tolerance)
        assert ours.state[mine].keys() == theirs.state[other].keys()
        for name, value in theirs.state[other].items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(ours.state[mine][name], value, **tolerance)
            else:
                assert ours.state[mine][name] == value


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_as_torch(case, dtype, interpreted):
    kind, settings = CASES[case]
    if dtype is torch.bfloat16 and settings.get("centered"):
        pytest.skip("a difference of squares, rounded at each operation by eager and once by us")
    ours, theirs = twins(kind, dtype, **settings)
    step = compiled(ours)
    tolerance = {"rtol": 5e-2, "atol": 5e-2} if dtype is torch.bfloat16 else {"rtol": 1e-6, "atol": 1e-6} if dtype is torch.float32 else {}
    for _ in range(3):
        give_gradients(ours, theirs)
        before = [p._version for p in parameters(ours)]
        step()
        theirs.step()
        same(ours, theirs, **tolerance)
        assert all(p._version > v for p, v in zip(parameters(ours), before, strict=True))
    [site] = step.sites.values()
    assert all(made.ours and not made.rest for made in site.made.values())


def test_a_changed_rate_builds_nothing(interpreted, monkeypatch):
    ours, theirs = twins(O.AdamW, lr=0.1)
    schedules = [O.lr_scheduler.ExponentialLR(o, 0.5) for o in (ours, theirs)]
    step = compiled(ours)
    for k in range(4):
        give_gradients(ours, theirs)
        step()
        theirs.step()
        for each in schedules:
            each.step()
        same(ours, theirs)
        monkeypatch.setattr(module, "build_update", lambda *_: pytest.fail("built again"))


def test_groups_and_parameters_without_gradient(interpreted):
    ours, theirs = twins(O.Adam, lr=0.1)
    for each in (ours, theirs):
        each.add_param_group({"params": [torch.nn.Parameter(torch.ones(3))], "lr": 0.5, "weight_decay": 0.1})
    step = compiled(ours)
    for k in range(4):
        give_gradients(ours, theirs)
        for each in (ours, theirs):
            parameters(each)[k % 2].grad = None
        step()
        theirs.step()
        same(ours, theirs)


def test_state_that_is_loaded_is_used(interpreted):
    ours, theirs = twins(O.Adam, lr=0.1)
    step = compiled(ours)
    for _ in range(2):
        give_gradients(ours, theirs)
        step()
        theirs.step()
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    give_gradients(ours, theirs)
    step()
    theirs.step()
    same(ours, theirs)


def test_closures_and_hooks(interpreted):
    ours, theirs = twins(O.SGD, lr=0.1)
    said = []
    for each, step in ((ours, compiled(ours)), (theirs, theirs.step)):
        each.register_step_pre_hook(lambda o, a, k: said.append("before"))
        each.register_step_post_hook(lambda o, a, k: said.append("after"))

        def closure(each=each):
            each.zero_grad()
            loss = sum(p.pow(2).sum() for p in parameters(each))
            loss.backward()
            said.append("closure")
            return loss

        said.append(float(step(closure).detach()))
    assert said[:4] == said[4:]
    same(ours, theirs)


def test_what_no_kernel_walks_is_left_to_torch(interpreted):
    ours, theirs = twins(O.SGD, lr=0.1, momentum=0.9)
    step = compiled(ours)
    for _ in range(3):
        give_gradients(ours, theirs)
        for each in (ours, theirs):
            p = parameters(each)[0]
            p.grad = p.grad.t().contiguous().t()  # laid out otherwise than the parameter
        step()
        theirs.step()
        same(ours, theirs)
    [made] = step.sites["sgd"].made.values()
    assert made.rest == [0]


@pytest.mark.parametrize("settings", [{"fused": True}, {"capturable": False, "lr": 0.1}])
def test_switches(settings, interpreted):
    ours, theirs = twins(O.Adam, **settings)
    step = compiled(ours)
    give_gradients(ours, theirs)
    step()
    theirs.step()
    same(ours, theirs)
    assert bool(step.sites["adam"].made) == ("lr" in settings)


def test_which_steps_are_ours():
    ours, _ = twins(O.Adam)
    assert optimizer_of(ours.step) is ours
    O.lr_scheduler.ExponentialLR(ours, 0.5)
    assert optimizer_of(ours.step) is ours  # which by now is a function of the scheduler's
    assert optimizer_of(ours.zero_grad) is optimizer_of(print) is optimizer_of(O.LBFGS([torch.nn.Parameter(torch.ones(1))]).step) is None

    class Own(O.Adam):
        def step(self, closure=None):
            return super().step(closure)

    assert optimizer_of(Own(parameters(ours)).step) is None
    assert stand_in(Own.step, None, None, []) is None


def test_a_class_that_changes_its_step_keeps_it():
    class Other(O.Adam):
        pass

    ours, _ = twins(Other)
    instead = stand_in(Other.step, None, None, [])
    assert has_rule(Other.step)
    calls = []
    Other.step = lambda self, *a: calls.append(a)
    with pytest.raises(RuntimeError):  # torch's own, since this is not what the class has any more
        parameters(ours)[0].grad = torch.ones(3, 2).to_sparse()
        instead(ours)


def test_what_fits():
    p = torch.nn.Parameter(torch.ones(4, 6))
    assert fits({"param": p, "grad": torch.ones(4, 6)})
    assert not fits({"param": p, "grad": torch.ones(6, 4).t()})
    assert not fits({"param": p, "grad": torch.ones(4, 6).to_sparse()})
    assert not fits({"param": p, "grad": torch.ones(4, 6, dtype=torch.complex64)})
    assert not fits({"param": p, "grad": torch.ones(4, 6), "count": torch.tensor(1)})
    assert is_dense(torch.ones(4, 1, 6).transpose(0, 2))
    assert not is_dense(torch.ones(4, 6)[:, ::2]) and not is_dense(torch.ones(1, 6).expand(4, 6))


@pytest.mark.parametrize("name", [n for n, (kind, _) in CASES.items() if kind is not O.SGD])
def test_steps_counted_outside(interpreted, monkeypatch, name):
    """As on GPUs, where torch keeps the counts in the memory of the CPU."""
    monkeypatch.setattr(module, "counted_outside", lambda entry: "count" in entry)
    kind, settings = CASES[name]
    ours, theirs = twins(kind, **settings)
    step = compiled(ours)
    for k in range(5):
        for p, q in zip(parameters(ours), parameters(theirs), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        if k == 3:  # counts that differ are torch's to handle
            for optimizer in (ours, theirs):
                optimizer.state[parameters(optimizer)[0]]["step"].add_(2)
        step()
        theirs.step()
    for p, q in zip(parameters(ours), parameters(theirs), strict=True):
        torch.testing.assert_close(p, q, atol=1e-5, rtol=1e-5)
        assert float(ours.state[p]["step"]) == float(theirs.state[q]["step"])
    [made] = step.sites[next(iter(step.sites))].made.values()
    assert made.outside and not made.rest and made.update is not None
