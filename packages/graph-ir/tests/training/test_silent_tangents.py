"""Gradients of a model that returns large results beside its loss: the same whichever of them are differentiated."""

import pytest
import torch

from opmill_graph_ir.backend import GraphOptions, compile_graph
from opmill_graph_ir.capture import silent

F = torch.nn.functional


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 33)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = self.body(x).tanh()
        logits = self.head(hidden)
        return F.cross_entropy(logits, labels), logits, hidden


USES = {
    "loss": lambda loss, logits, hidden: loss,
    "scaled loss": lambda loss, logits, hidden: 3 * loss,
    "logits": lambda loss, logits, hidden: logits.square().sum(),
    "loss and logits": lambda loss, logits, hidden: loss + logits.sin().sum(),
    "hidden": lambda loss, logits, hidden: hidden.exp().sum(),
    "all": lambda loss, logits, hidden: loss + logits.sin().sum() + hidden.exp().sum(),
}


@pytest.fixture
def anything_is_large(monkeypatch):
    monkeypatch.setattr(silent, "_is_large", lambda meta: bool(meta.sizes))


@pytest.fixture
def compiled(anything_is_large):
    model = Model()
    x, labels = torch.randn(6, 8, requires_grad=True), torch.randint(0, 33, (6,))
    made = compile_graph(torch.fx.symbolic_trace(model), [x, labels], options=GraphOptions(cache=False), generators=[])
    return model, made, x, labels


@pytest.mark.filterwarnings("ignore:GI030")
@pytest.mark.parametrize("use", USES)
def test_gradients_are_eagers(compiled, use: str) -> None:
    model, made, x, labels = compiled
    assert made.executable.layout.silent == (1, 2)
    own = dict(model.named_parameters())
    for _ in range(2):
        wanted = torch.autograd.grad(USES[use](*model(x, labels)), [x, *own.values()], allow_unused=True)
        found = torch.autograd.grad(USES[use](*made(x, labels)), [x, *own.values()], allow_unused=True)
        for name, a, b in zip(("x", *own), found, wanted, strict=True):
            assert (a is None) == (b is None), name
            if b is not None:
                torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.filterwarnings("ignore:GI030")
def test_each_of_two_backwards_is_its_own(compiled) -> None:
    model, made, x, labels = compiled
    loss, logits, _ = made(x, labels)
    first = torch.autograd.grad(loss, x, retain_graph=True)[0]
    second = torch.autograd.grad(logits.sum(), x)[0]
    torch.testing.assert_close(first, torch.autograd.grad(model(x, labels)[0], x)[0])
    torch.testing.assert_close(second, torch.autograd.grad(model(x, labels)[1].sum(), x)[0])


@pytest.mark.filterwarnings("ignore:GI030")
def test_without_a_loss_there_is_one_plan(anything_is_large) -> None:
    model, x = torch.nn.Linear(4, 4), torch.randn(3, 4)
    made = compile_graph(torch.fx.symbolic_trace(model), [x], options=GraphOptions(cache=False), generators=[])
    assert made.executable.layout.silent == () and made.executable.behind[0].usual is None


class _Writing(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(y)
        return x.sin()


@pytest.mark.filterwarnings("ignore:GI030")
@pytest.mark.parametrize("looked_at", [False, True])
def test_what_is_written_and_not_returned_is_usually_silent(monkeypatch, looked_at: bool) -> None:
    monkeypatch.setattr(silent, "_LARGE_WRITTEN", 0)
    model, leaf, y = _Writing(), torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    made = compile_graph(torch.fx.symbolic_trace(model), [leaf * 2, y], options=GraphOptions(cache=False), generators=[])
    assert made.executable.layout.silent == (1,) and made.executable.behind[0].usual is not None
    found = []
    for call in (model, lambda *inputs: made(*inputs)[0]):
        x = leaf * 2
        result = call(x, y).sum() + (x.cos().sum() if looked_at else 0)
        found += torch.autograd.grad(result, leaf)
    torch.testing.assert_close(*found)
