"""Data that a program rounds to half precision are rounded, also where nothing of that is stored."""

import pytest
import torch

from opmill_kernel_gen_triton.debug import as_for_gpu

pytestmark = pytest.mark.triton
HALF = torch.bfloat16


def lost(x, y):
    return x - x.to(HALF).float()


def lost_by_half(x, y):
    return x - x.half().float()


def lost_by_ints(x, y):
    i = (y * 1000).to(torch.int32)
    return i.to(HALF).float() - i


def compared(x, y):
    return torch.lt(x.to(HALF), x), torch.ne(x.to(HALF).float(), x)


def of_a_sum(x, y):
    total = x.sum(-1, keepdim=True)
    return total - total.to(HALF).float() + 0 * y


def of_something_computed(x, y):
    z = x * y + 1
    return z - z.to(HALF).float()


def in_two_parts(x, y):
    """A float32 as two of half precision, as products that are nearly exact take it."""
    high = x.to(HALF)
    return high, (x - high.float()).to(HALF)


def of_positions(x, y):
    places = torch.arange(700, dtype=torch.float32)
    return places.to(HALF).float() - places + 0 * x.sum()


@pytest.mark.parametrize(
    "program", [lost, lost_by_half, lost_by_ints, compared, of_a_sum, of_something_computed, in_two_parts, of_positions]
)
def test_what_rounding_lost_is_there(program) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(5, 700), torch.randn(5, 700)]
    with torch.no_grad():
        call, plan, _ = as_for_gpu(torch.fx.symbolic_trace(program), inputs)
        got, want = call(*inputs), program(*inputs)
    assert plan.kernels
    for a, b in zip(got if isinstance(got, (tuple, list)) else [got], want if isinstance(want, tuple) else [want], strict=True):
        if b.dtype == torch.bool:
            assert torch.equal(a, b) and b.any()
        else:
            torch.testing.assert_close(a, b, rtol=2e-2, atol=1e-5 if program is of_a_sum else 1e-7)
