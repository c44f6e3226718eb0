"""Branches, loops, scans, custom gradients and checkpoints are operators of the graph with graphs of their own; torch's compiler is not
asked."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint

from opmill_bytecode_frontend import Unsupported, capture

KNOWN = torch.linspace(-1, 1, 4)


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(1, 2, 4))

    def forward(self, x):
        return x * self.weight


NET = Scale().requires_grad_(False)


# ---- programs, each with what it means in plain Python -------------------------------------------------------------------


def branches(x):
    y = x * 2
    return torch.cond(x.sum() > 0, lambda t: t.sin() + y, lambda t: NET(t) - KNOWN, (x,))


def plain_branches(x):
    return x.sin() + x * 2 if x.sum() > 0 else NET(x) - KNOWN


def structures(x):
    found = torch.cond(x[0, 0] > 0, lambda t, u: {"a": (t + u, [u]), "b": 3}, lambda t, u: {"a": (t - u, [t * 2]), "b": 3}, (x, x.exp()))
    return found["a"][0] * found["b"] + found["a"][1][0]


def plain_structures(x):
    return (x + x.exp()) * 3 + x.exp() if x[0, 0] > 0 else (x - x.exp()) * 3 + x * 2


def nested(x):
    def outer(t):
        return torch.cond(t.max() > 1, lambda u: u + x, lambda u: u - KNOWN, (t * 2,)) + 1

    return torch.cond(x.sum() > 0, outer, lambda t: t.cos(), (x,))


def plain_nested(x):
    if not x.sum() > 0:
        return x.cos()
    t = x * 2
    return (t + x if x.max() > 1 else t - KNOWN) + 1


def by_size(x):
    return torch.cond(x.shape[0] > 3, torch.sin, torch.cos, (x,))


def plain_by_size(x):
    return x.sin()


def loop(x):
    limit = x.abs().sum()
    count, y = while_loop(lambda n, t: t.abs().sum() < 4 * limit, lambda n, t: (n + 1, t * 1.5 + KNOWN * 0), (torch.tensor(0), x))
    return y * count


def plain_loop(x):
    n, t = 0, x
    while t.abs().sum() < 4 * x.abs().sum():
        n, t = n + 1, t * 1.5
    return t * n


def scans(x):
    carried, rows = scan(lambda c, row: (c * 0.5 + row, {"out": c * row + KNOWN}), KNOWN, x, reverse=True)
    return carried, rows["out"]


def plain_scans(x):
    c, out = KNOWN, []
    for row in x.flip(0):
        out.append(c * row + KNOWN)
        c = c * 0.5 + row
    return c, torch.stack(out[::-1])


def maps(x):
    return map_rows(lambda row, y: row.softmax(0) + y, x, x[0] * 2)


def plain_maps(x):
    return torch.stack([row.softmax(0) + x[0] * 2 for row in x])


PROGRAMS = {
    f.__name__: (f, g)
    for f, g in (
        (branches, plain_branches), (structures, plain_structures), (nested, plain_nested), (by_size, plain_by_size), (loop, plain_loop),
        (scans, plain_scans), (maps, plain_maps),
    )
}  # fmt: skip


def inputs():
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    return [x.abs() + 0.1, -x.abs() - 0.1, x.abs() * 0.1 + 0.01]


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_python_has_it(name):
    function, plain = PROGRAMS[name]
    graphs = []
    compiled = capture(function, lambda gm, examples: graphs.append(gm) or gm.forward, fullgraph=True)
    with torch.no_grad():
        for x in inputs():
            torch.testing.assert_close(compiled(x), plain(x))
    assert len(graphs) == 1


def test_sizes_that_change_are_sizes_of_the_bodies():
    compiled = capture(lambda x: torch.cond(x.sum() > 0, lambda t: t * t.shape[0], lambda t: t - x.shape[0], (x,)), "eager", fullgraph=True)
    for n in (3, 5, 7, 4):
        for x in (torch.rand(n, 2), -torch.rand(n, 2)):
            torch.testing.assert_close(compiled(x), x * n if x.sum() > 0 else x - n)


def appended(x):
    seen = []
    return torch.cond(x.sum() > 0, lambda t: seen.append(1) or t + 1, lambda t: t - 1, (x,)) + len(seen)


def counted(x):
    n = 0

    def turn(i, t):
        nonlocal n
        n += 1
        return i + 1, t * 2

    return while_loop(lambda i, t: i < 3, turn, (torch.tensor(0), x))[1] + n


LEAVING = []


def leaves(x):
    def keep(t):
        LEAVING.append(t.sin())
        return t + 1

    return torch.cond(x.sum() > 0, keep, lambda t: t - 1, (x,))


REFUSED = {
    "FE083": [appended, counted, leaves],
    "FE084": [
        lambda x: torch.cond(x.sum() > 0, lambda t: t, lambda t: t.sum(), (x,)),
        lambda x: torch.cond(x.sum() > 0, lambda t: (t, 1), lambda t: (t, 2), (x,)),
        lambda x: while_loop(lambda t: t.sum() > 0, lambda t: t.to(torch.float64), (x,)),
        lambda x: while_loop(lambda n, t: n < 3, lambda n, t: (n + 1, t), (0, x)),
    ],
}


@pytest.mark.parametrize(("code", "function"), [(code, f) for code, fs in REFUSED.items() for f in fs])
def test_refused(code, function):
    with pytest.raises(Unsupported, match=code):
        capture(function, "eager", fullgraph=True)(torch.ones(3))
    assert not LEAVING


def test_torch_dynamo_is_not_imported():
    code = """
import sys, torch
from opmill_bytecode_frontend import capture
from torch.nn.attention.flex_attention import flex_attention
f = capture(lambda x: torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,)), "eager", fullgraph=True)
assert torch.equal(f(torch.ones(3)), torch.full((3,), 2.0))
found = []
def backend(gm, examples):
    found.append(gm)
    return lambda q: (q * 0, q[..., 0])
capture(lambda q: flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + (i - j)), backend, fullgraph=True)(torch.ones(1, 2, 4, 8))
assert torch.ops.higher_order.flex_attention in [n.target for n in found[0].graph.nodes]
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


# ---- custom gradients, checkpoints ---------------------------------------------------------------------------------------


class Doubled(torch.autograd.Function):
    """Its backward is not the derivative of its forward, so that who ignores it is found out."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x, x.exp())
        ctx.factor = factor
        return x.sin() * factor

    @staticmethod
    def backward(ctx, grad):
        x, e = ctx.saved_tensors
        return grad * x.cos() * 2 * ctx.factor + e * KNOWN, None


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y, x > y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs)
        assert ctx.needs_input_grad == (True, False)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad, _):
        x, y = ctx.saved_tensors
        return grad * y * 3, None


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


class Optional(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b=None):
        ctx.save_for_backward(x, w, b)
        return x @ w if b is None else x @ w + b

    @staticmethod
    def backward(ctx, grad):
        x, w, b = ctx.saved_tensors
        return grad @ w.t() * 2 if ctx.needs_input_grad[0] else None, None, None if b is None else grad.sum(0)


def optional(x):
    return Optional.apply(x, KNOWN.diag()) + Optional.apply(x, KNOWN.diag(), x[0])


def pairs(x):
    product, larger = Pair.apply(x, KNOWN)
    return torch.where(larger, product, x) * 2


def written(x):
    y = x.clone()
    z = Doubling.apply(y)
    return y * z


def checkpointed(x):
    return checkpoint(lambda t, k: (t * k).sin() @ t.t(), x, 3, use_reentrant=False) * checkpoint(torch.exp, x @ x.t(), use_reentrant=True)


def inside(x):
    return checkpoint(lambda t: Doubled.apply(t, 2) + 1, x, use_reentrant=False)


GRADIENTS = [
    lambda x: Doubled.apply(x, 2.5).exp(),
    lambda x: Doubled.apply(Doubled.apply(x, 1), 2),
    pairs,
    written,
    checkpointed,
    inside,
    optional,
]


@pytest.mark.parametrize("function", GRADIENTS)
def test_gradients(function):
    compiled = capture(function, "eager", fullgraph=True)
    for k in range(2):
        found = []
        for call in (function, compiled):
            x = torch.randn(4, 4, generator=torch.Generator().manual_seed(k)).requires_grad_()
            out = call(x)
            out.sum().backward()
            found.append((out.detach(), x.grad))
        torch.testing.assert_close(found[1], found[0])


def test_what_a_forward_keeps_does_not_leave_it_otherwise():
    class Leaking(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            LEAVING.append(x.exp())
            return x + 1

        @staticmethod
        def backward(ctx, grad):
            return grad

    with pytest.raises(Unsupported, match="FE082"):
        capture(lambda x: Leaking.apply(x), "eager", fullgraph=True)(torch.ones(3, requires_grad=True))
    assert not LEAVING
