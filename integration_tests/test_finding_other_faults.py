"""Ten more faults, planted where rules, gradients, guards and steps are: check(), bisect(), profile() or explain() leads to the line of each."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import opmill
from opmill_bytecode_frontend.values import sequence
from opmill_graph_ir.freezing import copies
from opmill_graph_ir.ops import lower, reductions
from opmill_graph_ir.schedule import cse, memory
from opmill_runtime_cache._native import Frozen

sys.path.insert(0, str(Path(__file__).parent))
from planted import kernels_are_loaded_anew, plant, plant_row, wrong_row  # noqa: E402, F401 (the first is a fixture)


@pytest.fixture(autouse=True)
def anew():  # type: ignore[no-untyped-def]
    """Captures with planted faults would stay."""
    yield
    opmill.reset()


@pytest.fixture
def options(tmp_path) -> dict[str, Any]:  # type: ignore[no-untyped-def]
    return {"cache_dir": str(tmp_path)}


def numbers(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def lines(found: opmill.Finding) -> set[int]:
    print(found)
    return {int(line.partition(", line ")[2].partition(",")[0]) for line in found.where if __file__ in line}


def line(function, number: int) -> int:  # type: ignore[no-untyped-def]
    return function.__code__.co_firstlineno + number


def by_columns(x: torch.Tensor) -> torch.Tensor:
    y = x.tanh()
    z = y.sum(0, keepdim=True)
    return z * 2


def test_a_wrong_index_in_a_reduction(monkeypatch, options) -> None:  # type: ignore[no-untyped-def]
    plant(monkeypatch, reductions.full_position, "position.append(outs.pop(0))", "position.append(outs.pop(0) * 0)")
    found = opmill.bisect(by_columns, options=options)(numbers(6, 5))
    assert lines(found) == {line(by_columns, 2)} and found.fault == "lowering to loops"


def mean_of_halves(x: torch.Tensor) -> torch.Tensor:
    y = x.half()
    total = y.sum(-1)
    return total / 2


def test_a_wrong_type_of_an_accumulation(monkeypatch, options) -> None:  # type: ignore[no-untyped-def]
    plant_row(monkeypatch, "aten::sum.dim_IntList", "wide(_result(ctx, node)[1].dtype)", '"int64"')
    found = opmill.bisect(mean_of_halves, options=options)(numbers(3, 64))
    assert line(mean_of_halves, 2) in lines(found) and found.fault == "lowering to loops"


def padded(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    z = torch.nn.functional.pad(y, (2, 1))
    return z.exp()


def test_a_mask_that_is_one_off(monkeypatch, options) -> None:  # type: ignore[no-untyped-def]
    plant_row(monkeypatch, "aten::constant_pad_nd", 'op("ge", index_value(a)', 'op("gt", index_value(a)')
    found = opmill.bisect(padded, options=options)(numbers(4, 7))
    assert lines(found) == {line(padded, 2)} and found.fault == "lowering to loops"


def activated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w
    z = torch.nn.functional.silu(y)
    return z.cos()


def test_a_wrong_gradient_of_one_operator(monkeypatch, options) -> None:  # type: ignore[no-untyped-def]
    wrong_row(monkeypatch, "aten::silu_backward", lambda right: lambda ctx, node, gradient, x: right(ctx, node, gradient, gradient))
    given = numbers(4, 5), numbers(5, 6).requires_grad_()
    seen = opmill.check(activated, options=options)(*given)
    assert [row.name for row in seen.wrong] == ["gradient of argument[1]"]
    assert lines(opmill.bisect(activated, options=options)(*given)) == {line(activated, 2)}


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        self.seen += y.sum(0)
        return y.relu()


def test_a_lost_write(monkeypatch, options) -> None:  # type: ignore[no-untyped-def]
    plant(monkeypatch, lower._mutations, "for target, view, origin in pending:", "for target, view, origin in pending[:0]:")
    seen = opmill.check(Counting(), options=options)(numbers(3, 4))
    assert [row.name for row in seen.wrong] == ["seen after the call"] and "only eager has it" in str(seen)
    found = opmill.bisect(Counting(), options=options)(numbers(3, 4))
    assert found.part == "backend" and line(Counting.forward, 2) in lines(found)


def spread(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    z = y + row.expand(4, 4)
    return z.sigmoid()


def test_a_wrong_broadcast(monkeypatch, options) -> None:  # type: ignore[no-untyped-def]
    plant_row(monkeypatch, "aten::expand", "axes[lead + k]", "axes[lead + k - 1]")
    found = opmill.bisect(spread, options=options)(numbers(4, 4), numbers(1, 4))
    assert lines(found) == {line(spread, 2)} and found.fault == "lowering to loops"


def looked_up(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    rows = torch.nn.functional.embedding(ids, table)
    return rows.tanh()


def test_a_check_that_is_lost(monkeypatch, options) -> None:  # type: ignore[no-untyped-def]
    plant_row(monkeypatch, "aten::embedding", "ext), lets, checks", "ext), lets, ()")
    given = numbers(64, 4)[:32], torch.tensor([0, 33])
    seen = opmill.check(looked_up, options=options)(*given)
    assert "eager raises IndexError" in str(seen)
    assert lines(opmill.bisect(looked_up, options=options)(*given)) == {line(looked_up, 1)}


def several(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    a = x @ w
    b = a.exp() @ w
    c = b.tanh() @ w
    return a + b + c


def test_memory_that_is_given_away_too_early(monkeypatch, options) -> None:  # type: ignore[no-untyped-def]
    right = memory._lives
    monkeypatch.setattr(memory, "_lives", lambda *given: {name: (begin, begin) for name, (begin, _) in right(*given).items()})
    with pytest.warns(opmill.OpmillWarning, match=r"RC028.*aten::mm\.out writes slot \d+ over its operand"):
        assert opmill.check(several, options=options)(numbers(6, 6) / 3, numbers(6, 6, seed=1) / 3)


class Chosen(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [torch.sin, torch.exp, torch.tanh]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[1:]:
            x = layer(x)
        return x


def test_a_wrong_rule_of_the_frontend(monkeypatch, options) -> None:  # type: ignore[no-untyped-def]
    plant(monkeypatch, sequence.SequenceValue.m___getitem__, "self.make(self.items[where])", "self.make(self.items[where][::-1])")
    found = opmill.bisect(torch.nn.Sequential(torch.nn.Linear(4, 4), Chosen()), options=options)(numbers(3, 4))
    print(found)
    assert (found.part, found.module) == ("frontend", "1") and f"{__file__}:{line(Chosen.forward, 0)}" in found.where[0]


class Forgetful:
    """Copies of frozen weights of which the first serves all calls."""

    def __init__(self, positions, count, missed) -> None:  # type: ignore[no-untyped-def]
        self.right, self.positions, self.missed, self.first = Frozen(positions, count, missed), set(positions), missed, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.right, name)

    def add(self, tensors, run, *rest):  # type: ignore[no-untyped-def]
        self.first = run
        return self.right.add(tensors, run, *rest)

    def __call__(self, *inputs):  # type: ignore[no-untyped-def]
        if self.first is None:
            return self.missed(*inputs)
        return self.first(*(x for k, x in enumerate(inputs) if k not in self.positions))


def test_a_stale_constant_of_frozen_weights(monkeypatch, options) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(copies, "_native", types.SimpleNamespace(Frozen=Forgetful))
    model, x = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval(), numbers(2, 3, 8, 8)
    compiled = opmill.compile(model, options={"freeze": True, **options})
    with torch.no_grad():
        compiled(x)
        model[1].running_mean.add_(1)
        seen = opmill.check(compiled)(x)
        found = opmill.bisect(compiled)(x)
    print(found)
    assert not seen and found.part == "guards" and "freeze" in found.fault


def test_a_slow_step_of_the_compiler(monkeypatch, options) -> None:  # type: ignore[no-untyped-def]
    right = cse.remove_common
    monkeypatch.setattr(cse, "remove_common", lambda program: (sum(range(30_000_000)), right(program))[1])
    told = opmill.explain(opmill.compile(by_columns, options=options))(numbers(6, 5))
    phases = told.graphs[0].report.phases
    assert max((name for name in phases if name not in ("generate", "import")), key=phases.__getitem__) == "cse"
    assert "cse" in str(told)
