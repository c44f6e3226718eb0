"""Marks on tensors: which sizes may change, which never do."""

from typing import Any

import pytest
import torch

import opmill
from opmill.explain import explanation_of


def double(x):  # type: ignore[no-untyped-def]
    return x * 2 + x.shape[0]


def calls(compiled, *sizes):  # type: ignore[no-untyped-def]
    """How often it is compiled for tensors of these first dimensions."""
    for n in sizes:
        x = n if isinstance(n, torch.Tensor) else torch.ones(n, 3)
        assert torch.equal(compiled(x), double(x))
    return explanation_of(compiled).recompiles + 1


def test_a_marked_dimension_is_compiled_once() -> None:
    x = torch.ones(5, 3)
    opmill.mark_dynamic(x, 0)
    assert calls(opmill.compile(double, backend="eager", fullgraph=True), x, 6, 7, 30) == 1


def test_a_range_is_kept_to() -> None:
    x = torch.ones(5, 3)
    opmill.mark_dynamic(x, -2, min=4, max=8)
    compiled = opmill.compile(double, backend="eager", fullgraph=True)
    assert calls(compiled, x, 4, 8) == 1 and calls(compiled, 3) == 2
    assert any("s0 >= 4" in reason for each in explanation_of(compiled).reasons for reason in each.reasons)


def test_a_static_dimension_is_compiled_anew() -> None:
    x = torch.ones(5, 3)
    opmill.mark_dynamic(x, [0, 1])
    opmill.mark_static(x)
    assert calls(opmill.compile(double, backend="eager", fullgraph=True, dynamic=True), x, 6, 7) == 2


@pytest.mark.parametrize(("dynamic", "expected"), [(None, 2), (True, 1), (False, 4)])
def test_dynamic(dynamic: bool | None, expected: int) -> None:
    assert calls(opmill.compile(double, backend="eager", fullgraph=True, dynamic=dynamic), 5, 6, 7, 8) == expected


def test_wrong_marks() -> None:
    x = torch.ones(5, 3)
    for error, arguments in ((ValueError, (x, 2)), (TypeError, (x, 1.5)), (TypeError, ([1], 0)), (ValueError, (x, [0, -3]))):
        with pytest.raises(error, match="OM013"):
            opmill.mark_dynamic(*arguments)
    with pytest.raises(ValueError, match="OM013"):
        opmill.mark_dynamic(x, 0, min=5, max=4)
    assert "_dynamo_dynamic_indices" not in x.__dict__


COMPUTED = [
    "x + 1 / n", "x - n / 2 * 1.5", "0.15 / n + 0.85 * x", "x * (n * 0.5)", "x.sum() - n / 2", "x.sum() / n - n * 0.5", "x / (n / 3)", "x.double() * (1 / n)",
    "x.long() * (n / 4)", "x * n ** -0.5", "(x > 1 / n).float()", "x.half() + n / 8", "x.clone().mul_(1 / n).sub_(n / 3)", "torch.full((n,), 1 / n)",
    "x * min(0.99, (1 + n) / (10 + n))", "x.mean() * n / 2 - 1.5 * n",
]  # fmt: skip


@pytest.mark.parametrize("value", COMPUTED)
def test_floats_that_are_computed_of_sizes_take_one_plan(value: str) -> None:
    """Each size was one of its own, where the compiler had to know the number."""
    names: dict[str, Any] = {"torch": torch}
    exec(f"def f(x):\n    n = x.shape[0]\n    return {value}", names)
    opmill.reset_counters()
    compiled = opmill.compile(names["f"])
    for n in (4, 6, 5, 9, 7):
        x = torch.arange(float(n * 3)).reshape(n, 3) / 7
        got, want = compiled(x), names["f"](x)
        assert got.dtype == want.dtype and got.shape == want.shape
        torch.testing.assert_close(got, want, rtol=1e-3 if got.dtype == torch.float16 else 1e-6, atol=0)
    assert opmill.counters()["graphs"] == 2
