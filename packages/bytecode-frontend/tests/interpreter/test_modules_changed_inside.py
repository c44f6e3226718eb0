"""Captured code that changes what a module holds and goes on with it: attributes, parameters, buffers, submodules and hooks by one name."""

from __future__ import annotations

import collections.abc
import random
from typing import Any

import pytest
import torch
from torch import nn

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.options import CaptureOptions

CHANGES = (
    "m.a = x * {n}",
    "m.a = None",
    "m.a = {n}",
    "m.a = nn.Parameter(x.detach() + {n})",
    "m.a = nn.Buffer(x.detach() - {n})",
    "m.a = nn.ReLU()",
    "m.register_buffer('a', x + {n})",
    "m.register_buffer('a', None)",
    "m.register_parameter('a', nn.Parameter(x.detach() * {n}))",
    "m.register_parameter('a', None)",
    "m.add_module('a', nn.Tanh())",
    "m.add_module('a', None)",
    "del m.a",
    "delattr(m, 'a')",
    "m._buffers['a'] = x + {n}",
    "m._parameters.pop('a', None)",
    "m.__dict__['a'] = {n}",
    "m.__dict__.pop('a', None)",
    "m.weight = nn.Parameter(m.weight.detach() * {n})",
    "m._forward_hooks[{n}] = lambda mod, args, out: out + {n}",
    "m._forward_pre_hooks[{n}] = lambda mod, args: (args[0] * {n},)",
    "m._forward_hooks.clear()",
    "m.forward = lambda z: z * {n}",
    "m.__dict__.pop('forward', None)",
    "m.training = not m.training",
)
READS = ("m.a", "hasattr(m, 'a')", "m(x)", "[n for n, _ in m.named_buffers()]", "[n for n, _ in m.named_parameters()]", "list(m._modules)")


def program(seed: int) -> Any:
    """A function that changes and reads a module in turns; what raises is noted and passed over."""
    rng = random.Random(seed)
    lines = ["def program(m, x):", "    seen = []"]
    for _ in range(rng.randrange(3, 8)):
        what = rng.choice(CHANGES).format(n=rng.randrange(2, 5)) if rng.random() < 0.6 else f"seen.append({rng.choice(READS)})"
        lines += [
            "    try:",
            f"        {what}",
            "    except (AttributeError, KeyError, TypeError) as error:",
            "        seen.append(str(error))",
        ]
    namespace: dict[str, Any] = {"nn": nn}
    exec("\n".join([*lines, "    return seen", ""]), namespace)
    return namespace["program"], "\n".join(lines)


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return type(value), value.requires_grad, value.tolist()
    if isinstance(value, nn.Module):
        return type(value)
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [shown(v) for v in value]
    return "function" if callable(value) else value


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 3)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_random_changes(first: int) -> None:
    for seed in range(first, first + 20):
        function, source = program(seed)
        captured = capture(function, lambda gm, inputs: gm.forward, options=CaptureOptions(recompile_limit=100))
        plain, twin, x = module(), module(), torch.arange(3.0)
        for call in range(3):
            assert shown(captured(twin, x)) == shown(function(plain, x)), (seed, call, source)
            assert shown(vars(twin)) == shown(vars(plain)), (seed, call, source)


def test_a_buffer_registered_inside_is_written_as_one() -> None:
    class Mean(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not hasattr(self, "mean"):
                self.register_buffer("mean", torch.zeros(3))
            self.mean = self.mean * 0.5 + x
            return x - self.mean

    mean = Mean()
    capture(lambda m, x: m(x), lambda gm, inputs: gm.forward)(mean, torch.ones(3))
    assert "mean" not in vars(mean)
    assert mean.state_dict()["mean"].tolist() == [1.0, 1.0, 1.0]


class Elsewhere(collections.abc.MutableMapping):
    """Keeps what libraries that move weights in and out keep of them."""

    def __init__(self, inner):
        self.inner = dict(inner)

    def __getitem__(self, name):
        return self.inner[name]

    def __setitem__(self, name, value):
        self.inner[name] = value

    def __delitem__(self, name):
        del self.inner[name]

    def __iter__(self):
        return iter(self.inner)

    def __len__(self):
        return len(self.inner)


@pytest.mark.filterwarnings("error")
def test_parameters_in_a_mapping_of_the_programs(caplog):
    def f(layer, x):
        layer._parameters = Elsewhere(layer._parameters)
        layer.note = 3
        return layer(x) + layer.weight.sum(), list(layer._parameters)

    x, found = torch.ones(2, 3), []
    for call in (f, capture(f)):
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 3)
        out, names = call(layer, x)
        found.append((out.tolist(), names, layer.note, type(layer._parameters)))
    assert found[0] == found[1] and not caplog.records  # of internal errors
