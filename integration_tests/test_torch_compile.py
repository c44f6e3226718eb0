"""graph-ir behind torch's own frontend: ``torch.compile(backend="opmill")``."""

import warnings

import pytest
import torch
import torch.utils.checkpoint
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


@torch.library.custom_op("opmill_tests::wave", mutates_args=())
def wave(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x)


wave.register_fake(torch.empty_like)
wave.register_autograd(
    lambda ctx, g: g * ctx.saved_tensors[0].cos(), setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0])
)


@torch.library.custom_op("opmill_tests::raise_", mutates_args=("x",))
def raise_(x: torch.Tensor) -> None:
    x.add_(1)


class Doubled(torch.autograd.Function):
    """Its backward is not the derivative of its forward, so that who ignores it is found out."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos() * 2


def raised(x):
    y = x.clone()
    raise_(y)
    return y * 2


def flex(x):
    q = x.reshape(1, 1, 6, 4)
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + (i - j))


COMPILED = {
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda t: (t.sin() * 2).exp(), x, use_reentrant=False) * 2,
    "autograd function": lambda x: Doubled.apply(x) * 2,
    "vmap": lambda x: torch.vmap(lambda r: (r * 2).sum())(x),
    "grad": lambda x: torch.func.grad(lambda t: t.sin().sum())(x),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1],
    "associative scan": lambda x: associative_scan(lambda a, b: a + b, x.exp(), 0, combine_mode="generic"),
    "custom operator": lambda x: wave(x) * 2,
    "cond": lambda x: torch.cond(x.max() > 0.9, lambda t: t.sin() * 2, lambda t: t.cos() - 1, (x,)),
    "cond in cond": lambda x: torch.cond(
        x.max() > 0.9, lambda t: t.sin(), lambda t: torch.cond(t.max() > 0.5, lambda u: u + 1, lambda u: u * 3, (t,)), (x,)
    ),
    "scan": lambda x: scan(lambda c, e: (c + e, c * e), torch.zeros(4), x)[1],
    "map": lambda x: map_rows(lambda r: r.sin() + 1, x),
    "while": lambda x: while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (torch.tensor(0), x))[1].exp(),
    "flex attention": flex,
}
FALLS_BACK = {
    "custom operator that writes": raised,
    "gradients through a loop": lambda x: while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (torch.tensor(0), x))[1].exp(),
}
NO_BACKWARD = ("flex attention", "while")  # the first on a CPU, says eager


def run(f, grad):
    """What ``f`` gives, and the gradient of its input."""
    x = torch.linspace(-1, 1, 24).reshape(6, 4).sin().requires_grad_(grad)
    out = f(x)
    if out.requires_grad:
        (out * torch.arange(out.numel()).reshape(out.shape)).sum().backward()
    return out.detach(), x.grad


def same(f, grad):
    want = run(f, grad)
    compiled = torch.compile(f, backend="opmill", fullgraph=True)
    for _ in range(2):
        for w, g in zip(want, run(compiled, grad), strict=True):
            assert (w is None) == (g is None)
            if w is not None:
                torch.testing.assert_close(g, w)


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name, grad):
    if grad and name in NO_BACKWARD:
        pytest.skip("eager has no backward for it here, or it falls back")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="GI03")
        same(COMPILED[name], grad)


@pytest.mark.filterwarnings("ignore:GI033", "ignore:flex_attention called")
@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", FALLS_BACK)
def test_right_where_it_falls_back(name, grad):
    same(FALLS_BACK[name], grad)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
        self.out = torch.nn.Linear(144, 2)

    def forward(self, x, y):
        return F.cross_entropy(self.out(F.gelu(self.norm(self.conv(x))).flatten(1)), y)


def test_a_training_step():
    import copy

    eager = Block()
    ours = copy.deepcopy(eager)
    x, y = torch.randn(2, 3, 8, 8), torch.tensor([0, 1])
    for model, call in ((eager, eager), (ours, torch.compile(ours, backend="opmill", fullgraph=True))):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            call(x, y).backward()
            optimizer.step()
    for (name, want), got in zip(eager.state_dict().items(), ours.state_dict().values(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, msg=name)


class Attends(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm = torch.nn.Embedding(50, 16), torch.nn.LayerNorm(16)
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 50)

    def forward(self, ids):
        x = self.table(ids)
        q, k, v = self.qkv(self.norm(x)).view(*ids.shape, 3, 2, 8).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return F.cross_entropy(self.out(x).flatten(0, 1), ids.flatten())


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_sizes_that_change(grad):
    model = Attends()
    graphs = []

    def backend(gm, inputs):
        from opmill_graph_ir.torch_backend import torch_backend

        graphs.append(gm)
        return torch_backend(gm, inputs)

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    with warnings.catch_warnings(), torch.set_grad_enabled(grad):
        warnings.filterwarnings("error", message="GI03")
        for batch, length in ((2, 8), (3, 8), (3, 11), (5, 16), (4, 23)):
            ids = torch.randint(0, 50, (batch, length))
            found = []
            for call in (model, compiled):
                loss = call(ids)
                found.append([loss.detach(), *(torch.autograd.grad(loss, list(model.parameters())) if grad else [])])
            for want, got in zip(*found, strict=True):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert len(graphs) <= 3
