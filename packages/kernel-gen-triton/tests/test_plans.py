"""Whole plans as they are compiled for a GPU, interpreted, against eager."""

import pytest
import torch
from torch import nn

from opmill_kernel_gen_triton.budget import Budget
from opmill_kernel_gen_triton.debug import as_for_gpu
from opmill_runtime_cache.plan.model import Call

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]


def _compared(module: nn.Module, x: torch.Tensor, most: float = 3.0) -> list[str]:
    """The operators that the plan calls; the result is at most so many times as far from float64 as eager's."""
    with torch.no_grad():
        run, plan, _ = as_for_gpu(torch.fx.symbolic_trace(module), [x])
        [got], eager = run(x), module(x)
        exact = module.double()(x.double())
    assert (got.shape, got.stride(), got.dtype) == (eager.shape, eager.stride(), eager.dtype)
    assert (got - exact).abs().max() <= most * (eager - exact).abs().max() + torch.finfo(x.dtype).eps * exact.abs().max()
    return [step.op for step in plan.steps if type(step) is Call]


class Patches(nn.Module):
    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.cut, self.norm = convolution, nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.cut(x).flatten(2).transpose(1, 2))


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_patches_of_images_are_products(dims: int, bias: bool, alone: bool) -> None:
    torch.manual_seed(0)
    convolution = (nn.Conv2d, nn.Conv3d)[dims - 2](3, 6, 2, 2, bias=bias)
    module = (nn.Sequential(convolution) if alone else Patches(convolution)).bfloat16()
    assert _compared(module, torch.randn(2, 3, *(8, 6, 4)[:dims]).bfloat16()) == ["aten::mm.out"]


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(3, 6, 2, 2, padding=1),
        nn.Conv2d(3, 6, 2, 1),
        nn.Conv2d(3, 6, 3, 3),
        nn.Conv2d(8, 6, 2, 2),
        nn.Conv2d(4, 6, 2, 2, groups=2),
    ],
)
def test_other_convolutions_are_none(module: nn.Conv2d) -> None:
    torch.manual_seed(0)
    assert _compared(nn.Sequential(module).bfloat16(), torch.randn(2, module.in_channels, 8, 8).bfloat16()) == ["aten::convolution"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d])
def test_biases_of_convolutions(kind: type, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(kind(4, 6, 3, padding=1), nn.ReLU(), kind(6, 5, 3)).to(dtype)
    assert _compared(module, torch.randn(2, 4, *[7] * (1 if kind is nn.Conv1d else 2)).to(dtype)) == ["aten::convolution"] * 2


class Perceptron(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


@pytest.mark.parametrize(("dtype", "products"), [(torch.float16, ["mm", "addmm"]), (torch.float32, ["addmm", "mm"])])
def test_biases_of_products(dtype: torch.dtype, products: list[str]) -> None:
    """In six blocks, of which the compiler looks at four."""
    torch.manual_seed(0)
    module = nn.Sequential(*(Perceptron(16) for _ in range(6))).to(dtype)
    assert _compared(module, torch.randn(2, 8, 16).to(dtype)) == [f"aten::{op}.out" for op in products] * 6


class Filled(torch.nn.Module):
    """What the softmax stores is the same everywhere, and is read again from where it was stored."""

    def forward(self, x):
        x.fill_(2)
        y = torch.softmax(x, 0)
        return torch.nn.functional.gelu(y), y + x - y


def test_what_is_stored_in_a_loop_is_not_used_before_it() -> None:
    small = Budget(processors=4, tile=64, longest=1, values=1, chunk=16, steps=4)
    with torch.no_grad():
        run, plan, _ = as_for_gpu(torch.fx.symbolic_trace(Filled()), [torch.randn(5)], small)
        for a, b in zip(run(torch.randn(5)), Filled()(torch.randn(5)), strict=True):
            torch.testing.assert_close(a, b)
    assert plan.kernels
