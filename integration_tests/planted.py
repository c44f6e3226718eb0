"""The program in which faults are planted, and what every planted fault needs."""

import pytest
import torch

from opmill_runtime_cache.devices import cpu


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.nn.functional.gelu(self.linear(self.norm(x)))
        return h.tanh() + x


FILE, LINE = __file__, Block.forward.__code__.co_firstlineno


@pytest.fixture(autouse=True)
def kernels_are_loaded_anew(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """A kernel's key is what it is made of, not the text that a planted fault changes: this process would run the right one again."""
    monkeypatch.setattr(cpu, "_libraries", {})
