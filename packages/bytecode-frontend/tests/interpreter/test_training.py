"""Gradients through captured functions are those of the plain ones; what autograd does outside of tensors' values breaks the graph."""

from __future__ import annotations

import pytest
import torch

from opmill_bytecode_frontend import Unsupported, capture


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.b = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.b(torch.tanh(self.norm(self.a(x))))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x  # not the true derivative: shows whether this code runs


def own_function(net, x):
    return Square.apply(net(x) + 1) * 2


def detached(net, x):
    y = net(x)
    return y.detach() * 2 + y


def partly_without_grad(net, x):
    with torch.no_grad():
        scale = net(x).abs().mean()
    return net(x) * scale


def read_in_between(net, x):
    y = net(x)
    return y * 2 if y.sum().item() < 1e9 else y


def requires_grad_set(net, x):
    z = (x * 2).detach().requires_grad_()
    y = net(z).sum()
    (g,) = torch.autograd.grad(y, z, create_graph=True)
    return g * 2 + net(x).sum()


def inner_step(net, x):
    loss = net(x).pow(2).sum()
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.01 * p.grad
    grads = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    return net(x) + sum(g.sum() for g in grads)


def data_written(net, x):
    net.b.weight.data = net.b.weight.data * 2
    net.b.bias.data.add_(1)
    return net(x)


def hooked(net, x):
    y = net(x)
    y.register_hook(lambda g: g * 5)
    return y * 2


def retained(net, x):
    y = net(x) * 2
    y.retain_grad()
    y.pow(2).sum().backward(retain_graph=True)
    return y.grad + y


FUNCTIONS = [own_function, detached, partly_without_grad, read_in_between, requires_grad_set, inner_step, data_written, hooked, retained]


def train(fn, net, turns=2):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    seen = []
    for turn in range(turns):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(turn), requires_grad=True)
        optimizer.zero_grad()
        y = fn(net, x)
        (y * y).sum().backward()
        seen += [y.detach().clone(), x.grad.clone(), *[p.grad.clone() for p in net.parameters()]]
        optimizer.step()
    return seen + list(net.state_dict().values())


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_equal_eager(fn):
    torch.manual_seed(0)
    state = Net().state_dict()
    plain, captured = Net(), Net()
    plain.load_state_dict(state)
    captured.load_state_dict(state)
    want, got = train(fn, plain), train(capture(fn, "eager"), captured)
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_training_module_is_one_graph():
    net = Net()
    compiled = capture(Net.forward, "eager", fullgraph=True)
    x = torch.randn(3, 4)
    compiled(net, x).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_writes_below_what_autograd_keeps_are_refused_in_full_graphs():
    def used_before(net, x):
        return net(x) + data_written(net, x)

    with pytest.raises(Unsupported, match=r"FE032"):
        capture(used_before, "eager", fullgraph=True)(Net(), torch.randn(3, 4, requires_grad=True))


def test_train_and_eval_are_told_apart():
    net = Net()
    compiled = capture(Net.forward, "eager", fullgraph=True)
    x = torch.randn(5, 4)
    for mode in (True, False, True):
        net.train(mode)
        twin = Net().train(mode)
        twin.load_state_dict(net.state_dict())
        assert torch.equal(compiled(net, x), twin(x))
        assert torch.equal(net.norm.running_mean, twin.norm.running_mean)
        assert net.norm.num_batches_tracked == twin.norm.num_batches_tracked


def penalty(net, x):
    out = net(x).pow(2).sum()
    [slope] = torch.autograd.grad(outputs=out, inputs=[x], create_graph=True)
    return (slope.norm(dim=1) - 1).pow(2).mean() + out


def first_derivative(net, x):
    return torch.autograd.grad(net(x * 2).sum(), x)[0] * 2 + net(x).sum()


def in_the_midst(net, x):
    y = net(x)
    [slope] = torch.autograd.grad((y**3).sum(), y, create_graph=True)
    return slope * y


@pytest.mark.parametrize("program", [penalty, first_derivative, in_the_midst], ids=lambda f: f.__name__)
def test_derivatives_inside_are_part_of_the_graph(program):
    found = []
    for make in (lambda f: f, lambda f: capture(f, "eager", fullgraph=True)):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        x = torch.randn(3, 4, requires_grad=True)
        out = make(lambda x, net=net: program(net, x))(x)
        out.sum().backward()
        found.append([out.detach(), x.grad, *(p.grad for p in net.parameters())])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want)


def test_derivatives_of_what_was_computed_before_are_not():
    def f(a, b):
        return torch.autograd.grad((a * b).sum(), a)[0]

    def run(call):
        a = torch.ones(3, requires_grad=True)
        return call(a, a * 2)

    with pytest.raises(Unsupported):
        run(capture(f, "eager", fullgraph=True))
    torch.testing.assert_close(run(capture(f, "eager")), run(f))


def test_views_whose_history_autograd_does_not_tell_are_written():
    def f(x):
        y = x * 1
        with torch.no_grad():
            part = y[:2]
        y.mul_(2)
        with torch.no_grad():
            part *= 3
        return y

    x = torch.arange(4.0, requires_grad=True)
    got = capture(f, "eager", fullgraph=True)(x)
    torch.testing.assert_close(got, f(x))
    assert got.requires_grad


def test_hooks_that_are_called_after_an_exception_as_well():
    class Failing(torch.nn.Module):
        def forward(self, x):
            if x.shape[0] == 3:
                raise ValueError("three")
            return x + 1

    def run(wrap):
        module, seen = Failing(), []
        module.register_forward_hook(lambda module, args, result: seen.append(result is None), always_call=True)

        def caller(x):
            return module(x)

        call = wrap(caller)
        for size in (2, 3, 2, 3):
            try:
                call(torch.ones(size))
            except ValueError as error:
                seen.append(str(error))
        return seen

    assert run(lambda f: f) == run(capture) == run(lambda f: capture(f, fullgraph=True)) == [False, True, "three"] * 2
