"""Faults planted in the packages are found by bisect(), down to the operator, the step of the compiler and the kernel."""

import math
import sys
import types
from pathlib import Path

import pytest
import torch

import opmill
from opmill_graph_ir.ops import activations
from opmill_kernel_gen_cpp.emit import functions

sys.path.insert(0, str(Path(__file__).parent))
from planted import FILE, LINE, Block, kernels_are_loaded_anew  # noqa: E402, F401 (the last is a fixture)


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(Block(), Block(), torch.nn.Softmax(-1))


def bisected(model: torch.nn.Module, tmp_path) -> opmill.Finding:  # type: ignore[no-untyped-def]
    found = opmill.bisect(model, options={"cache_dir": str(tmp_path)})(torch.randn(3, 16, generator=torch.Generator().manual_seed(0)))
    print(found)
    assert found.part == "backend"
    return found


def operators(found: opmill.Finding) -> list[str]:
    assert found.graph is not None
    return [node.name for node in found.graph.graph.nodes if node.op.startswith("call_")]


def test_nothing_is_found_where_nothing_is_wrong(model, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert not opmill.bisect(model, options={"cache_dir": str(tmp_path)})(torch.randn(3, 16))


def test_a_wrong_lowering(model, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    wrong = types.SimpleNamespace(**{**vars(math), "sqrt": lambda v: math.sqrt(v) * 1.001})
    monkeypatch.setattr(activations, "math", wrong)
    found = bisected(model, tmp_path)
    assert found.fault == "lowering to loops" and operators(found)[0].startswith("gelu") and len(operators(found)) == 1
    assert any(f'{FILE}", line {LINE + 1}' in line for line in found.where)


def write_a_wrong_tanh(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """On all processors: those that look up coefficients in tables do so no longer."""
    monkeypatch.setattr(functions, "in_pieces", lambda *_: None)
    monkeypatch.setattr(functions, "_TANH", [*functions._TANH[:-1], -0.36])


def test_a_wrong_kernel(model, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    write_a_wrong_tanh(monkeypatch)
    found = bisected(model, tmp_path)
    assert "kernel generator" in found.fault and operators(found)[0].startswith("tanh")
    assert "tanh" in found.kernels[0].loops


def test_the_program_of_a_finding_runs(model, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    write_a_wrong_tanh(monkeypatch)
    text = bisected(model, tmp_path).program()
    seen: list[object] = []
    exec(compile(text, "program", "exec"), {"print": seen.append, "__name__": "__main__"})
    [checked] = seen
    assert not checked  # the fault is still there
