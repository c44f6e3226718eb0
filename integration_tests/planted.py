"""The program in which faults are planted, and what every planted fault needs."""

import inspect
import sys
import textwrap

import pytest
import torch
from msgspec import structs

from opmill_graph_ir.ops.records import all_records
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


def plant(monkeypatch, function, old: str, new: str) -> None:  # type: ignore[no-untyped-def]
    """Puts ``new`` where a function of a package says ``old``, as an edit of its source would."""
    module = sys.modules[function.__module__]
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(old) == 1, text
    space: dict[str, object] = {}
    exec(compile("from __future__ import annotations\n" + text.replace(old, new), module.__file__ or "", "exec"), vars(module), space)
    owner, _, name = function.__qualname__.rpartition(".")
    monkeypatch.setattr(getattr(module, owner) if owner else module, name, space[name])


def plant_row(monkeypatch, operator: str, old: str, new: str) -> None:  # type: ignore[no-untyped-def]
    """The same in the row that lowers an operator."""
    record = all_records()[operator]
    function = inspect.unwrap(record.lower)
    module = sys.modules[function.__module__]
    text = textwrap.dedent(inspect.getsource(function))
    text = text[text.index("def ") :]
    assert text.count(old) == 1, text
    space: dict[str, object] = {}
    exec(compile("from __future__ import annotations\n" + text.replace(old, new), module.__file__ or "", "exec"), vars(module), space)
    monkeypatch.setitem(all_records(), operator, structs.replace(record, lower=space[function.__name__]))


def wrong_row(monkeypatch, operator: str, change) -> None:  # type: ignore[no-untyped-def]
    """``change(right lowering)`` lowers an operator."""
    record = all_records()[operator]
    monkeypatch.setitem(all_records(), operator, structs.replace(record, lower=change(record.lower)))
