"""Attention that is kernels of tiles on a GPU, against eager: functions of scores and masks, and one query over a cache."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import opmill

pytestmark = [pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"), pytest.mark.filterwarnings("ignore")]

SCORES = {
    "plain": None,
    "slopes": lambda s, b, h, i, j: s + (h + 1) * 0.05 * (j - i),
    "capped": lambda s, b, h, i, j: 5 * torch.tanh(s / 5),
}
MASKS = {
    "all": None,
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i >= j) & (i - j < 60),
    "prefix": lambda b, h, i, j: (i >= j) | (j < 30),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("score", "mask", "own", "length", "width"),
    [("plain", "causal", 4, 256, 64), ("slopes", "window", 2, 200, 64), ("capped", "prefix", 4, 300, 128), ("plain", "all", 1, 130, 128)],
)
def test_functions_of_scores(score: str, mask: str, own: int, length: int, width: int, dtype: torch.dtype) -> None:
    block = None if MASKS[mask] is None else create_block_mask(MASKS[mask], None, None, length, length, device="cuda")

    def attend(q, k, v):
        return flex_attention(q, k, v, score_mod=SCORES[score], block_mask=block, enable_gqa=own != 4)

    q, k, v = (torch.randn(2, n, length, width, device="cuda", dtype=dtype, requires_grad=True) for n in (4, own, own))
    gradient = torch.randn(2, 4, length, width, device="cuda", dtype=dtype)
    compiled = opmill.compile(attend)
    out = compiled(q, k, v)
    found = out, *torch.autograd.grad(out, (q, k, v), gradient)
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    exact = attend(*wide)
    right = exact, *torch.autograd.grad(exact, wide, gradient.double())
    for ours, want in zip(found, right, strict=True):
        assert (ours.double() - want).norm() <= (1e-4 if dtype == torch.float32 else 2e-2) * want.norm()


@pytest.mark.parametrize("trains", [False, True])
def test_a_window_that_a_program_writes_as_a_mask(trains: bool) -> None:
    def attend(q, k, v):
        i = torch.arange(q.shape[2], device=q.device)
        distance = i[:, None] - i
        kept = (distance >= 0) & (distance < 100)
        k, v = (t[:, :, None].expand(-1, -1, 2, -1, -1).reshape(q.shape) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=kept[None, None])

    q, k, v = (torch.randn(2, n, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=trains) for n in (4, 2, 2))
    gradient = torch.randn(2, 4, 1024, 64, device="cuda", dtype=torch.bfloat16)
    wide = [t.detach().double().requires_grad_(trains) for t in (q, k, v)]
    out, exact = opmill.compile(attend)(q, k, v), attend(*wide)
    found, right = [out], [exact]
    if trains:
        found += torch.autograd.grad(out, (q, k, v), gradient)
        right += torch.autograd.grad(exact, wide, gradient.double())
    for ours, want in zip(found, right, strict=True):
        assert (ours.double() - want).norm() <= 2e-2 * want.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(("rows", "heads", "own", "length", "width"), [(1, 32, 8, 4096, 64), (4, 8, 8, 256, 128), (3, 8, 2, 300, 64)])
def test_one_query_over_a_cache(rows: int, heads: int, own: int, length: int, width: int, dtype: torch.dtype) -> None:
    def attend(q, k, v, bias):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=own != heads) * 2

    q, k, v = (torch.randn(rows, n, m, width, device="cuda", dtype=dtype) for n, m in ((heads, 1), (own, length), (own, length)))
    bias = torch.where(torch.rand(rows, 1, 1, length, device="cuda") < 0.4, -torch.inf, 0.0).to(dtype)
    compiled = opmill.compile(attend)
    with torch.no_grad():
        ours, eager = compiled(q, k, v, bias), attend(q, k, v, bias)
        exact = attend(*(t.double() for t in (q, k, v, bias)))
    assert (ours.shape, ours.dtype) == (eager.shape, eager.dtype)
    assert (ours.double() - exact).norm() <= 3 * (eager.double() - exact).norm() + 1e-5 * exact.norm()
