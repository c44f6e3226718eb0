"""What kernels check and torch's meta kernels do not: the same exception as eager's, with the same text."""

from typing import Any

import pytest
import torch

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.rules.checks import CHECKS

F = torch.nn.functional
SHAPES = [(), (0,), (3,), (3, 0), (0, 3), (0, 0), (2, 3)]
REDUCING = {
    f"{name}({dim})": (lambda x, name=name, dim=dim: getattr(x, name)(dim))
    for name in ("max", "min", "median", "nanmedian", "mode", "cummax", "cummin", "softmax", "log_softmax")
    for dim in (-3, -2, -1, 0, 1, 2)
} | {
    f"{name}({dim})": (lambda x, name=name, dim=dim: getattr(torch, name)(x, *dim))
    for name in ("amax", "amin", "argmax", "argmin")
    for dim in ((), (0,), (-1,), (1, True), (None,), (2,), *([((0, 1),), ([],), ((1, 1),)] if name[0] == "a" and name[1] == "m" else []))
}
NUMBERS = {
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x, beta=-1.0),
    "huber": lambda x: F.huber_loss(x, x, delta=0.0),
    "linspace": lambda x: torch.linspace(0, 1j, 3, dtype=torch.float32),
    "logspace": lambda x: torch.logspace(0, 1j, 3, dtype=torch.float32),
    "softshrink": lambda x: F.softshrink(x, -1.0),
    "avg_pool": lambda x: F.avg_pool2d(x.expand(1, 1, 2, 3) if x.shape == (2, 3) else torch.ones(1, 1, 2, 3), 2, divisor_override=0),
    "gelu": lambda x: F.gelu(x, approximate="sigmoid"),
    "bucketize": lambda x: torch.bucketize(x, torch.ones(2, 2)),
    "put": lambda x: torch.ones(4).put(torch.tensor([0, 1]), torch.ones(3)),
    "soft margin": lambda x: F.soft_margin_loss(torch.ones(1, 3), torch.ones(2, 3), reduction="none"),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(torch.ones(3, 3), torch.ones(2)),
    "select_scatter": lambda x: torch.select_scatter(torch.ones(3, 3), torch.ones(2), 0, 1),
    "as_strided_scatter": lambda x: torch.as_strided_scatter(torch.ones(6), torch.ones(2), (3,), (2,)),
    "segment_reduce": lambda x: torch.segment_reduce(torch.ones(3), "sum", lengths=torch.ones(2, 3, dtype=torch.int64)),
    "integers to a negative power": lambda x: x.int() ** -1,
    "truths to a negative power": lambda x: (x > 0).pow(-2),
    "integers to a negative power in place": lambda x: x.int().pow_(-1),
    "lists of integers to a negative power": lambda x: torch._foreach_pow_([x, x.int()], -1),
    "many dimensions": lambda x: torch.ones([1] * 65).sum(0),
}


OF_ALL = {name: getattr(torch, name) for name in ("max", "min", "amax", "amin", "sum", "any", "median")}


def outcome(function: Any, x: torch.Tensor) -> tuple[str, str]:
    try:
        function(x)
    except Exception as e:
        return type(e).__name__, str(e)
    return "", ""


def same(function: Any, x: torch.Tensor) -> None:
    expected = outcome(function, x)
    with FakeContext() as ctx:
        assert outcome(function, ctx.from_tensor(x)) == expected


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", REDUCING)
def test_dimensions_that_are_not_there_or_empty(name: str, shape: tuple[int, ...]) -> None:
    same(REDUCING[name], torch.ones(shape))


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_and_shapes(name: str) -> None:
    assert outcome(NUMBERS[name], torch.ones(2, 3))[0]
    same(NUMBERS[name], torch.ones(2, 3))


def test_rows_are_of_operators_that_are_there() -> None:
    for name in CHECKS:
        space, _, packet = name.partition("::")
        assert hasattr(getattr(torch.ops, space), packet), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.uint8, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", OF_ALL)
def test_reductions_of_all(name, shape, dtype):
    same(OF_ALL[name], torch.ones(shape, dtype=dtype))
