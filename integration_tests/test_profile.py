"""profile() tells the kernels and operators of a call, what they move and compute, and their lines."""

import pytest
import torch

import opmill


def attend(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.gelu(x @ w)
    return y.softmax(-1)


PRODUCT = attend.__code__.co_firstlineno + 1


def test_a_profile_has_each_step_with_its_bytes_operations_and_lines() -> None:
    x, w = torch.randn(32, 16), torch.randn(16, 8)
    seen = opmill.profile(attend, calls=2)(x, w)
    [product] = [step for step in seen.steps if step.kind == "torch"]
    assert product.name.startswith("mm") and product.count == 1
    assert product.flops == 2 * 32 * 16 * 8 and product.bytes == 4 * (32 * 16 + 16 * 8 + 32 * 8)
    [kernel] = [step for step in seen.steps if step.kind == "kernel"]
    assert kernel.name == "gelu+_softmax" and kernel.flops == 0
    assert kernel.lines == (f"{__file__}:{PRODUCT}", f"{__file__}:{PRODUCT + 1}")
    assert set(seen.by_line()) == {f"{__file__}:{PRODUCT}", f"{__file__}:{PRODUCT + 1}"}
    assert all(step.seconds > 0 for step in seen.steps) and seen.eager > 0 and seen.compiled > 0
    assert "test_profile.py" in str(seen) and "softmax" in str(seen)


def test_the_backward_is_part_of_it() -> None:
    x, w = torch.randn(32, 16), torch.randn(16, 8, requires_grad=True)
    seen = opmill.profile(attend, calls=1)(x, w)
    assert sum(step.count for step in seen.steps if step.kind == "torch") == 2  # the product and its gradient
    assert any("backward" in step.origin for step in seen.steps)


def test_repeated_work_is_counted() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
    with torch.no_grad():
        seen = opmill.profile(model, calls=1)(torch.randn(2, 8))
    assert [step.count for step in seen.steps if step.kind == "torch"] == [3]


def test_only_opmills_own_backend_is_measured() -> None:
    with pytest.raises(ValueError, match="OM015"):
        opmill.profile(attend, backend="eager")(torch.ones(2, 2), torch.ones(2, 2))
