"""Programs on the toy device, each run in a process of its own: a process of torch has one such device, for good."""

import copy

import pytest
import torch
import toy_backend

import opmill
import toy_device
from opmill_runtime_cache.devices import registry
from opmill_runtime_cache.errors import PlanInputError
from opmill_runtime_cache.executor import bind
from opmill_runtime_cache.plan.model import Plan, SlotOutput, TensorInput, TensorSpec
from opmill_runtime_cache.store import Store

toy_backend.register()


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.inner = torch.nn.Linear(16, 32)
        self.outer = torch.nn.Linear(32, 16)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        hidden = torch.tanh(self.inner(self.norm(x))) * 2 + 1
        return x + self.outer(hidden), hidden[:, ::2].t()


def on_toy(module):
    return copy.deepcopy(module).to("toy")


def judge(module, x):
    """What float64 gives."""
    return copy.deepcopy(module).double()(x.double())


def it_is_found_beside_those_of_this_project():
    assert isinstance(registry.find("toy:0"), toy_device.ToyDevice)
    assert registry.number_of("toy:0") not in {registry.number_of("cpu"), registry.number_of("cuda:0")}
    assert registry.find("toy").traits == registry.traits_of("nobody's")


def a_model_runs_in_its_kernels():
    module, x = Block(), torch.randn(6, 16)
    there = on_toy(module)
    compiled = opmill.compile(there, fullgraph=True)
    with torch.no_grad():
        for call in range(1, 4):
            out, view = compiled(x.to("toy"))
            assert out.device == view.device == torch.device("toy:0")
            wanted, seen = judge(module, x)
            torch.testing.assert_close(out.cpu().double(), wanted, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(view.cpu().double(), seen, atol=1e-5, rtol=1e-5)
            assert view.stride() == module(x)[1].stride()
            assert there.calls.item() == call
    assert toy_device.ToyDevice.loaded


def sizes_change():
    module = Block()
    compiled = opmill.compile(on_toy(module), fullgraph=True, dynamic=True)
    with torch.no_grad():
        for n in (3, 5, 8, 3):
            x = torch.randn(n, 16)
            torch.testing.assert_close(compiled(x.to("toy"))[0].cpu().double(), judge(module, x)[0], atol=1e-5, rtol=1e-5)


def numbers_are_read_from_it():
    def picked(x):
        return x[: int((x > 0).sum())] * 2

    x = torch.tensor([1.0, -2, 3, 4])
    assert torch.equal(opmill.compile(picked)(x.to("toy")).cpu(), picked(x))


def memory_goes_back():
    compiled = opmill.compile(on_toy(Block()), fullgraph=True)
    with torch.no_grad():
        x = torch.randn(6, 16).to("toy")
        for _ in range(3):
            compiled(x)
        before = len(toy_backend.allocated)
        for _ in range(5):
            compiled(x)
    assert len(toy_backend.allocated) == before


def memory_of_another_device_is_refused_by_its_plan():
    plan = Plan("p", 1, (TensorInput(0, TensorSpec("float32", (4,), (1,), "toy:0")),), (SlotOutput(0),), ())
    run = bind(plan, [], Store(""))
    assert run(torch.zeros(4).to("toy"))[0].device.type == "toy"
    with pytest.raises(PlanInputError, match="RC05"):
        run(torch.zeros(4))
