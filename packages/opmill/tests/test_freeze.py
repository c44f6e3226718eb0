"""``options={"freeze": True}`` and ``opmill.thaw``, from outside."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import opmill


class Block(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.up, self.down = nn.Linear(16, width), nn.Linear(width, 8)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.gelu(self.up(torch.relu(self.norm(self.conv(x))).mean((2, 3)))))


def frozen(module: Any, tmp_path: Any, **options: Any) -> Any:
    return opmill.compile(module, fullgraph=True, options={"freeze": True, "cache_dir": str(tmp_path), **options})


def same(compiled: Any, module: Any, x: torch.Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)


def test_steps_of_training_between_frozen_calls_are_seen(tmp_path: Any) -> None:
    module = Block().eval()
    compiled, x = frozen(module, tmp_path), torch.randn(2, 3, 9, 9)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    for _ in range(3):
        same(compiled, module, x)
        compiled(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    same(compiled, module, x)
    module.load_state_dict(Block().state_dict())
    same(compiled, module, x)
    module.train()
    compiled(x)
    module.eval()
    same(compiled, module, x)
    module.double()
    same(compiled, module, x.double())


@pytest.mark.parametrize("trains", [False, True], ids=["eager", "compiled"])
def test_statistics_that_nobody_counts_are_seen(tmp_path: Any, trains: bool) -> None:
    """Norms in training write their running statistics without a count, in eager and in compiled calls."""
    module = Block().eval()
    compiled, x = frozen(module, tmp_path), torch.randn(2, 3, 9, 9)
    for _ in range(3):
        same(compiled, module, x)
        before = module.norm.running_mean._version
        module.train()
        (compiled if trains else module)(x)
        module.eval()
        assert module.norm.running_mean._version == before
    same(compiled, module, x)


def test_modules_share_what_is_compiled_and_not_what_is_made_of_weights(tmp_path: Any) -> None:
    modules, x = [Block().eval() for _ in range(3)], torch.randn(2, 3, 9, 9)
    opmill.reset_counters()
    pairs = [(frozen(module, tmp_path), module) for module in modules]
    for _ in range(2):
        for compiled, module in pairs:
            same(compiled, module, x)
    twin = copy.deepcopy(pairs[0][0])
    with torch.no_grad():
        twin.up.weight.zero_()
        pairs.append((twin, copy.deepcopy(modules[0])))
        pairs[-1][1].up.weight.zero_()
    same(*pairs[-1], x)
    same(*pairs[0], x)
    assert opmill.counters()["graphs"] == 1
    assert opmill.thaw(pairs[0][0]) == 4
    same(*pairs[0], x)


def test_thaw_shows_writes_that_no_call_sees(tmp_path: Any) -> None:
    module = Block().eval()
    compiled, x = frozen(module, tmp_path), torch.randn(2, 3, 9, 9)
    same(compiled, module, x)
    module.conv.weight.data.mul_(2)
    assert opmill.thaw(compiled) == 1
    same(compiled, module, x)
    sampling = frozen(module, tmp_path, freeze_check="samples")
    same(sampling, module, x)
    module.conv.weight.data.mul_(2)
    same(sampling, module, x)


def test_sizes_that_change(tmp_path: Any) -> None:
    module = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).eval()
    compiled = frozen(module, tmp_path)
    for rows in (40, 64, 3, 1, 96):
        same(compiled, module, torch.randn(rows, 64))
    with torch.no_grad():
        module[0].weight.zero_()
    same(compiled, module, torch.randn(7, 64))


def test_what_can_be_said_and_what_not(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="freeze_check"):
        opmill.compile(nn.ReLU(), options={"freeze_check": "sometimes"})
    with pytest.raises(TypeError, match="OM021"):
        opmill.thaw(nn.ReLU())
    function = opmill.compile(lambda x: x + 1)
    function(torch.ones(2))
    assert opmill.thaw(function) == 0
