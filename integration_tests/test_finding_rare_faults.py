"""Faults that show only now and then, or only in memory, order or layout: planted in the packages, each is found by bisect() down to the line."""

import sys
from pathlib import Path

import pytest
import torch

import opmill
from opmill_bytecode_frontend.entry import capture
from opmill_fake_tensors import strides
from opmill_graph_ir.schedule import fuse
from opmill_kernel_gen_cpp import kernel

sys.path.insert(0, str(Path(__file__).parent))
from planted import kernels_are_loaded_anew, plant  # noqa: E402, F401 (the first is a fixture)


def lines(found: opmill.Finding) -> set[int]:
    """Lines of this file that are named."""
    return {int(line.partition(", line ")[2].partition(",")[0]) for line in found.where if __file__ in line}


def line(function, number: int) -> int:  # type: ignore[no-untyped-def]
    return function.__code__.co_firstlineno + number


def of_other_rows(x: torch.Tensor) -> torch.Tensor:
    total = x.sum(-1)
    other = total.flip(0)
    return other.sin()


def test_a_wrong_fusion(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """A loop joins a nest though it reads what other points of the nest write: memory of the call before hides that from who calls once."""
    plant(monkeypatch, fuse._match, "_axis_name(at)", "(_axis_name(at) or next(iter(at.symbols), None))")
    x = torch.randn(4096, 64, generator=torch.Generator().manual_seed(0))
    assert not opmill.check(of_other_rows)(x)
    found = opmill.bisect(of_other_rows)(x)
    print(found)
    assert found.part == "backend" and found.fault == "fusing loops: in the step 'fuse'"
    assert lines(found) == {line(of_other_rows, 1), line(of_other_rows, 2)}
    assert "other outer points write that" in str(found)


def added(y: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    scaled = x * 0.5
    return y.index_add(0, at, scaled).tanh()


def test_a_race(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Threads add to the same rows without waiting for each other."""
    plant(monkeypatch, kernel._call, "serial or ", "")
    generator = torch.Generator().manual_seed(0)
    at = torch.randint(0, 4, (300_000,), generator=generator)
    found = opmill.bisect(added, of="race")(torch.zeros(4, 16), torch.randn(300_000, 16, generator=generator) / 1000, at)
    print(found)
    assert found.part == "backend" and found.fault == "a race in a kernel"
    assert lines(found) == {line(added, 2)}
    [fault] = found.kernels
    assert "add b" in fault.loops and "on the same memory" in fault.problem


def test_no_race_where_threads_do_not_meet() -> None:
    at = torch.randint(0, 4, (2000,), generator=torch.Generator().manual_seed(0))
    assert not opmill.bisect(added, of="race")(torch.zeros(4, 16), torch.randn(2000, 16), at)
    assert not opmill.bisect(torch.nn.Dropout(), of="race")(torch.ones(64))


@pytest.fixture(autouse=True)
def captured_anew():  # type: ignore[no-untyped-def]
    """Captures with planted faults are forgotten: modules of one class share them."""
    yield
    opmill.reset()


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = torch.nn.Linear(8, 8), 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).tanh()
        return y * self.scale


SCALE = 2.0


def scaled(x: torch.Tensor) -> torch.Tensor:
    y = x.tanh()
    return y * SCALE


@pytest.fixture
def forgetful(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Guards of what is called a scale are not made."""
    right = capture.GuardSet
    monkeypatch.setattr(capture, "GuardSet", lambda guards, loads: right([g for g in guards if "scale" not in str(g).lower()], loads))


def is_stale(found: opmill.Finding, at: int) -> None:
    print(found)
    assert found.part == "guards" and "no guard looks at" in found.fault
    assert lines(found) == {at}


def test_a_stale_guard_of_a_module(forgetful) -> None:  # type: ignore[no-untyped-def]
    model, x = Scaled(), torch.randn(3, 8)
    compiled = opmill.compile(model)
    compiled(x)
    assert opmill.check(compiled)(x) and not opmill.bisect(compiled)(x)
    model.scale = 3.0
    torch.testing.assert_close(compiled(x), model(x) / 3 * 2)
    assert not opmill.check(compiled)(x)
    is_stale(opmill.bisect(compiled)(x), line(Scaled.forward, 2))


def test_a_stale_guard_of_a_global(forgetful, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    compiled, x = opmill.compile(scaled), torch.randn(3, 8)
    compiled(x)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert not opmill.check(compiled)(x)
    is_stale(opmill.bisect(compiled)(x), line(scaled, 2))


def test_what_guards_look_at_is_not_stale() -> None:
    model, x = Scaled(), torch.randn(3, 8)
    compiled = opmill.compile(model)
    compiled(x)
    model.scale = 3.0
    assert opmill.check(compiled)(x) and not opmill.bisect(compiled)(x)


def turned(x: torch.Tensor) -> torch.Tensor:
    y = x.t().relu()
    return y + y.exp()


def test_a_wrong_stride(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Results of pointwise operators lie in another order than eager's."""
    plant(monkeypatch, strides._same_layout, "return all(", "return True or all(")
    found = opmill.bisect(turned)(torch.randn(8, 16))
    print(found)
    assert found.part == "backend" and lines(found) <= {line(turned, 1), line(turned, 2)} and len(lines(found)) == 1
    assert "strides: eager (1, 16), compiled (8, 1)" in str(found)
