"""Gradients of gradients: of what trains with writes, random numbers and casts, and through all kinds of layers."""

import pytest
import torch
from torch import nn
from training_cases import XG, Of, Of2

F = nn.functional


def image(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).requires_grad_()


def attention(m, x):
    q, k, v = ((x @ m.w * s).view(1, 3, 2, 2).transpose(1, 2) for s in (1.0, 0.5, 2.0))
    return (torch.softmax(q @ k.mT / 2, -1) @ v).sum(-1) * m.b[0] / 8


LAYERS = {
    "batch norm": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3, bias=False), nn.BatchNorm1d(4), nn.Tanh()), image(4, 3, 6)),
    "batch norm without statistics": (lambda: nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Tanh()), image(2, 3, 4, 4)),
    "batch norm in evaluation": (lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Tanh()).eval(), image(2, 3, 4, 4)),
    "instance and group norm": (lambda: nn.Sequential(nn.InstanceNorm1d(4, affine=True), nn.GroupNorm(2, 4), nn.Sigmoid()), image(2, 4, 6)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU()), XG),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 2), nn.Dropout(0.2)), XG),
    "noise": (lambda: Of(lambda m, x: torch.tanh(x @ m.w + torch.randn_like(x)) * torch.rand_like(x)), XG),
    "a buffer that is read, then written": (
        lambda: Of(lambda m, x: [y for y in [torch.tanh(x * m.s.clone() * m.b)] if m.s.mul_(0.5) is not None][0]),
        XG,
    ),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.SiLU(), nn.AvgPool2d(2), nn.ConvTranspose2d(4, 2, 2)),
        image(2, 2, 6, 6),
    ),
    "pooling": (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Softplus()), image(2, 1, 6, 6)),
    "attention": (lambda: Of(attention), XG),
    "losses": (
        lambda: Of2(
            lambda m, x, y: F.cross_entropy(x @ m.w, y, label_smoothing=0.1) * F.smooth_l1_loss(x, m.b.expand(3, 4)),
        ),
        XG,
        torch.tensor([1, 0, 3]),
    ),
    "scans and sorts": (
        lambda: Of(lambda m, x: (x @ m.w).cumsum(0).logcumsumexp(1) * x.sort(1).values + torch.cat([x[:, 2:] ** 3, x[:, :2] * m.b[:2]], 1)),
        XG,
    ),
    "indices": (
        lambda: Of(lambda m, x: (x.flip(0)[:, [0, 2, 2]] ** 2 * m.b[1:]).index_add(0, torch.tensor([0, 0, 2]), x[:, 1:].exp())),
        XG,
    ),
}


def penalty(call, module, inputs):
    out = call(*inputs)
    first = torch.autograd.grad((out * out.detach().cos()).sum(), inputs[:1], create_graph=True)[0]
    (out.sum() + first.square().sum()).backward()
    return [out, first, *(p.grad for p in module.parameters()), inputs[0].grad, *module.buffers(), torch.rand(1)]


@pytest.mark.parametrize("what", LAYERS)
def test_gradient_penalty(what, twins):
    make, *inputs = LAYERS[what]
    twins(make(), *inputs).same(penalty, *inputs)


def test_two_calls_before_the_second_derivative(twins):
    def use(call, module, inputs):
        outs = [call(inputs[0]), call(inputs[0] * 2)]
        [g] = torch.autograd.grad(sum(o.square().sum() for o in outs), inputs, create_graph=True)
        g.square().sum().backward()
        return [g, *(p.grad for p in module.parameters()), *module.buffers()]

    for name in ("batch norm", "dropout", "a buffer that is read, then written"):
        make, x = LAYERS[name]
        twins(make(), x).same(use, x)


def test_captured_under_autocast(twins):
    module = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4), nn.Softmax(-1))
    with torch.autocast("cpu", torch.bfloat16):
        pair = twins(module, XG)

    def use(call, module, inputs):
        with torch.autocast("cpu", torch.bfloat16):
            out = call(*inputs)
        [g] = torch.autograd.grad(out.float().square().sum(), inputs, create_graph=True)
        g.square().sum().backward()
        return [g.bfloat16(), *(p.grad.bfloat16() for p in module.parameters())]

    pair.same(use, XG)


def test_differentiated_under_autocast(twins):
    def use(call, module, inputs):
        out = call(*inputs)
        with torch.autocast("cpu", torch.bfloat16):
            [g] = torch.autograd.grad(out.sum(), inputs, create_graph=True)
        return [g.bfloat16()]

    twins(Of(lambda m, x: torch.tanh(x @ m.w) * m.b), XG).same(use, XG)


def test_many_gradients_at_once(twins):
    def use(call, module, inputs):
        out = call(*inputs)
        every = torch.eye(out.numel()).reshape(-1, *out.shape)
        return torch.autograd.grad(out, [*inputs, module.w], every, is_grads_batched=True)

    twins(Of(lambda m, x: torch.tanh(x @ m.w) * m.b), XG).same(use, XG)


def test_a_jacobian_and_a_hessian(twins):
    def use(call, module, inputs):
        f = torch.autograd.functional
        found = [f.jacobian(call, inputs[0], vectorize=v) for v in (False, True)]
        return [*found, f.hessian(lambda x: call(x).sum(), inputs[0]), f.hvp(lambda x: call(x).sum(), inputs[0], torch.ones(3, 4))[1]]

    twins(Of(lambda m, x: torch.tanh(x @ m.w) * m.b), XG).same(use, XG)
