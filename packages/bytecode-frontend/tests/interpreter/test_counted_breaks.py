"""Programs of torch's own libraries that end graphs, or once did: how often, at most, and that they do what they do without.

The numbers are those of torch.compile (torch 2.13), or less, but for hooks on saved tensors, modes of functions and packed sequences of
tensors: it makes graphs of less there, or has modes see other calls."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
import torch
from alike import near, same
from torch import nn
from torch.distributions import MultivariateNormal
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.overrides import TorchFunctionMode

from opmill_bytecode_frontend import Unsupported, capture

Program = tuple[Callable[..., object], tuple[Any, ...]]
ROWS: dict[str, tuple[int, Callable[[], Program]]] = {}


def row(most: int) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    """The decorated function makes a program that ends graphs so often at most."""

    def add(make: Callable[[], Program]) -> Callable[[], Program]:
        ROWS[make.__name__] = most, make
        return make

    return add


@row(0)
def a_normal_of_several_dimensions() -> Program:
    return lambda m, c: MultivariateNormal(m, c).log_prob(m + 1), (torch.zeros(2), torch.eye(2))


@row(1)
def layers_quantised_dynamically() -> Program:
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), {nn.Linear}, dtype=torch.qint8)
    return lambda x: model(x * 2) + 1, (torch.randn(2, 8),)


@row(2)
def packed_and_padded() -> Program:
    net = nn.LSTM(4, 5, batch_first=True)

    def run(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(net(packed)[0], batch_first=True)[0] * 2

    return run, (torch.randn(3, 5, 4), torch.tensor([5, 3, 2]))


@row(2)  # torch.compile leaves the recurrent layer out as a whole; here what packs before it and what follows are graphs
def packed() -> Program:
    net = nn.GRU(4, 5)
    return lambda a, b: pad_packed_sequence(net(pack_sequence([a, b]))[0])[0] * 2, (torch.randn(5, 4), torch.randn(3, 4))


@row(0)
def adaptive_probabilities() -> Program:
    return nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10]).log_prob, (torch.randn(6, 8),)


@row(1)
def an_adaptive_loss() -> Program:
    loss = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10])
    return lambda x, t: tuple(loss(x, t)), (torch.randn(6, 8), torch.tensor([0, 6, 12, 3, 19, 7]))


@row(1)
def linearised() -> Program:
    def run(x: torch.Tensor) -> torch.Tensor:
        y, derivative = torch.func.linearize(lambda t: t.sin() * 2, x)
        return y + derivative(torch.ones_like(x))

    return run, (torch.randn(3),)


@row(1)
def a_sparse_argument() -> Program:
    return lambda s, d: torch.sparse.mm(s, d * 2) + 1, (torch.eye(3).to_sparse(), torch.randn(3, 3))


@row(2)
def made_sparse() -> Program:
    at = torch.tensor([[0, 1], [1, 0]])
    return lambda x: torch.sparse.mm(torch.sparse_coo_tensor(at, x[:2], (2, 2)), torch.eye(2)) + 1, (torch.randn(4),)


@row(1)
def made_sparse_and_dense() -> Program:
    return lambda x: (x * 2).to_sparse().coalesce().to_dense() + 1, (torch.eye(3),)


@row(0)
def quantised() -> Program:
    return lambda x: torch.quantize_per_tensor(x * 2, 0.1, 0, torch.quint8).dequantize() + 1, (torch.randn(4),)


@row(2)
def a_sparse_gradient() -> Program:
    embedding = nn.Embedding(10, 4, sparse=True)

    def run(x: torch.Tensor) -> object:
        embedding.zero_grad()
        (embedding(x).sum() * 2).backward()
        assert embedding.weight.grad is not None
        return embedding.weight.grad.to_dense() * 2

    return run, (torch.tensor([1, 2, 3]),)


@row(1)
def a_mode_of_functions() -> Program:
    class Plain(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        with Plain():
            y = torch.sin(y) + 1
        return y * 3

    return run, (torch.randn(3),)


@row(2)
def hooks_on_saved_tensors() -> Program:
    weight = torch.randn(3, requires_grad=True)

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
            y = (weight * x).sin() * weight
        return y * 2

    return run, (torch.randn(3),)


@row(0)
def masked() -> Program:
    return lambda x: torch.masked.masked_tensor(x, x > 0).sum().get_data() + 1, (torch.randn(3),)


@row(0)
def nested() -> Program:
    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.nested.to_padded_tensor(torch.nested.nested_tensor([a * 2, b * 2], layout=torch.jagged), 0.0) + 1

    return run, (torch.randn(2, 3), torch.randn(1, 3))


@row(0)
def of_data_sizes() -> Program:
    return lambda x: (x[x > 0] * 2, torch.nonzero(x).sum(), torch.unique(x)), (torch.randn(6),)


@row(0)
def a_gradient_inside() -> Program:
    model = nn.Linear(4, 4)

    def run(x: torch.Tensor) -> object:
        model.zero_grad()
        model(x).sum().backward()
        assert model.weight.grad is not None
        return model.weight.grad.clone()

    return run, (torch.randn(2, 4),)


@row(1)
def scaled_gradients() -> Program:
    model = nn.Linear(3, 3)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")

    def run(x: torch.Tensor) -> object:
        optimizer.zero_grad()
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return model.weight.detach().clone()

    return run, (torch.randn(2, 3),)


@row(1)
def a_copied_module() -> Program:
    model = nn.Linear(4, 4)
    return lambda x: copy.deepcopy(model)(x) * 2, (torch.randn(2, 4),)


@row(1)
def numbers_drawn_from_a_seed() -> Program:
    def run(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return torch.rand(3) + x

    return run, (torch.randn(3),)


def test_a_copy_of_a_module_is_captured_once() -> None:
    model, translations = nn.Linear(4, 4), []
    compiled = capture(lambda x: copy.deepcopy(model)(x) * 2, "eager", on_translation=translations.append)
    for _ in range(12):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(x), model(x) * 2)
    assert len(translations) == 2


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.filterwarnings("ignore")
def test_no_more_breaks_than_torch_compile(name: str) -> None:
    most, make = ROWS[name]
    torch.manual_seed(0)
    function, args = make()
    torch.manual_seed(0)
    other, _ = make()
    breaks: list[Unsupported] = []
    compiled = capture(function if isinstance(function, FunctionType) else lambda *given: function(*given), "eager", on_break=breaks.append)
    for turn in range(2):
        with warnings.catch_warnings():
            assert same(compiled(*copy.deepcopy(args)), other(*copy.deepcopy(args)), near())
        if not turn:
            places = {(each.code, *each.stack[:1]) for each in breaks}  # that of a loop, and of what goes on behind it, is one
            assert len(places) <= most, [str(each) for each in breaks]
