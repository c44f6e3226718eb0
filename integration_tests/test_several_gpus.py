"""Programs on two devices of one host, whatever device is the current one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import opmill

pytestmark = [pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs"), pytest.mark.filterwarnings("ignore")]
MODES = ["default", "reduce-overhead"]


def net(device: str) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).to(device)


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return found.device == wanted.device and torch.allclose(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_a_model_on_another_device_than_the_current_one(mode: str) -> None:
    model = net("cuda:1")
    compiled = opmill.compile(model, mode=mode)
    assert torch.cuda.current_device() == 0
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(16, 32, device="cuda:1")
            assert close(compiled(x), model(x))
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("mode", MODES)
def test_one_function_on_either_device(mode: str) -> None:
    compiled = opmill.compile(lambda x, w: F.gelu(x @ w).softmax(-1).sum(0), mode=mode)
    with torch.no_grad():
        for k in (0, 1, 0, 1, 1, 0, 0, 1):
            x, w = (torch.randn(64, 64, device=f"cuda:{k}") for _ in range(2))
            assert close(compiled(x, w), F.gelu(x @ w).softmax(-1).sum(0))


def test_training_away_from_the_current_device() -> None:
    grads = []
    for compile_it in (False, True):
        model = net("cuda:1")
        run = opmill.compile(model) if compile_it else model
        torch.manual_seed(1)
        for _ in range(3):
            run(torch.randn(16, 32, device="cuda:1")).pow(2).mean().backward()
        grads.append([p.grad for p in model.parameters()])
    assert all(close(a, b) for a, b in zip(*grads, strict=True))


class Parts(nn.Module):
    """The first half on one device, the second on the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = net("cuda:0")[:2], nn.Linear(64, 8).to("cuda:1")

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).to("cuda:1")).softmax(-1)


def test_a_model_in_two_parts() -> None:
    torch.manual_seed(0)
    model = Parts()
    compiled = opmill.compile(model)
    for _ in range(3):
        x, grads = torch.randn(16, 32, device="cuda:0"), []
        for run in (model, compiled):
            model.zero_grad()
            out = run(x)
            out[:, 0].sum().backward()
            grads.append([out.detach(), *(p.grad.clone() for p in model.parameters())])
        assert all(close(a, b) for a, b in zip(*grads, strict=True))


def test_operands_on_different_devices_are_refused() -> None:
    compiled = opmill.compile(lambda x, y: (x * 2 + y).relu())
    x, y = torch.randn(4, device="cuda:0"), torch.randn(4, device="cuda:1")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cuda:0.*cuda:1|cuda:1.*cuda:0|same device"):
            compiled(x, y)
    assert close(compiled(x, y.to("cuda:0")), (x * 2 + y.to("cuda:0")).relu())


@pytest.mark.parametrize("mode", MODES)
def test_streams_of_the_other_device(mode: str) -> None:
    compiled = opmill.compile(lambda x: (x @ x).softmax(-1).cumsum(0), mode=mode)
    stream = torch.cuda.Stream("cuda:1")
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(256, 256, device="cuda:1")
            stream.wait_stream(torch.cuda.current_stream("cuda:1"))
            with torch.cuda.stream(stream):
                found = compiled(x)
            stream.synchronize()
            assert close(found, (x @ x).softmax(-1).cumsum(0))


def test_a_module_that_moves_between_devices() -> None:
    model = net("cuda:0")
    compiled = opmill.compile(model)
    with torch.no_grad():
        for device in ("cuda:0", "cuda:1", "cpu", "cuda:0"):
            model.to(device)
            x = torch.randn(4, 32, device=device)
            assert close(compiled(x), model(x))


def test_the_current_device_as_a_context() -> None:
    compiled = opmill.compile(lambda n: torch.arange(n, device="cuda").float().softmax(0))
    for k in (0, 1, 0):
        with torch.cuda.device(k), torch.no_grad():
            found = compiled(8)
            assert found.device.index == k and torch.allclose(found.cpu(), torch.arange(8).float().softmax(0))
