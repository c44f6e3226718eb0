"""Attention of one query a head as loops: against torch's own, in float64."""

import pytest
import torch
import torch.nn.functional as F

from opmill_kernel_gen_triton.debug import as_for_gpu
from opmill_runtime_cache.plan.model import Call

pytestmark = pytest.mark.triton
aten = torch.ops.aten


def cudnn(q, k, v, bias):
    return aten._scaled_dot_product_cudnn_attention.default(q, k, v, bias, False, 0.0, False, scale=0.2)[0]


def efficient(q, k, v, bias):
    return aten._scaled_dot_product_efficient_attention.default(q, k, v, bias, False, 0.0, False, scale=0.2)[0]


def flash(q, k, v, bias):
    return aten._scaled_dot_product_flash_attention.default(q, k, v, 0.0, False, False, scale=0.2)[0]


def repeated(q, k, v, bias):
    """As models write it whose heads share keys and values."""
    rows, heads, length, depth = k.shape
    k, v = (t.unsqueeze(2).expand(rows, heads, 2, length, depth).reshape(rows, 2 * heads, length, depth) for t in (k, v))
    return cudnn(q, k, v, bias)


SPLIT = [(1, 4, 2, 256, 64, 64), (2, 4, 1, 512, 16, 32), (1, 2, 2, 100, 32, 32), (3, 8, 2, 192, 32, 16), (1, 1, 1, 64, 16, 16)]


def bias_of(kind: str, rows: int, length: int) -> torch.Tensor | None:
    if kind == "none":
        return None
    bias = torch.where(torch.rand(rows, 1, 1, length) < 0.3, -torch.inf, torch.randn(rows, 1, 1, length))
    if kind == "whole row":
        bias[0] = -torch.inf
    return bias


@pytest.mark.parametrize("length", [5, 33, 256])
@pytest.mark.parametrize(
    ("how", "kind"), [(cudnn, "some"), (cudnn, "none"), (efficient, "some"), (flash, "none"), (repeated, "some"), (cudnn, "whole row")]
)
def test_is_what_torch_computes(how, kind: str, length: int) -> None:
    torch.manual_seed(0)
    rows, heads, depth = 2, 4, 8
    kept = heads // 2 if how is repeated else heads
    q, k, v = torch.randn(rows, heads, 1, depth), torch.randn(rows, kept, length, depth), torch.randn(rows, kept, length, depth)
    bias = bias_of(kind, rows, length)
    with torch.no_grad():
        inputs = [q, k, v] if bias is None else [q, k, v, bias]
        traced = torch.fx.symbolic_trace((lambda q, k, v: how(q, k, v, None)) if bias is None else (lambda q, k, v, b: how(q, k, v, b)))
        call, plan, _ = as_for_gpu(traced, inputs)
        got = call(*inputs)
    [got] = got if isinstance(got, (tuple, list)) else [got]
    shared = [t.repeat_interleave(heads // kept, 1).double() for t in (k, v)]
    want = F.scaled_dot_product_attention(q.double(), *shared, attn_mask=None if bias is None else bias.double(), scale=0.2)
    if kind == "whole row":
        want[0] = 0
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-6)
    assert not [step.op for step in plan.steps if isinstance(step, Call)]


@pytest.mark.parametrize("kind", ["none", "some", "whole row", "of heads"])
@pytest.mark.parametrize(("rows", "heads", "own", "length", "width", "depth"), SPLIT)
def test_long_caches_are_cut_into_parts(rows: int, heads: int, own: int, length: int, width: int, depth: int, kind: str) -> None:
    """A kernel that reads the cache as it lies, also where heads are repeated, and what puts its parts together."""
    torch.manual_seed(0)
    q = torch.randn(rows, 1, heads, width).bfloat16().transpose(1, 2)
    k, v = (torch.randn(rows, own, length, d).bfloat16() for d in (width, depth))
    bias = torch.randn(1, heads, 1, length) if kind == "of heads" else bias_of(kind, rows, length)

    def program(q, k, v, *bias):
        k, v = (
            t.unsqueeze(2).expand(rows, own, heads // own, length, t.shape[-1]).reshape(rows, heads, length, t.shape[-1]) for t in (k, v)
        )
        return efficient(q, k, v, *(bias or (None,))).transpose(1, 2).reshape(rows, 1, heads * depth) + 1

    inputs = [q, k, v] if bias is None else [q, k, v, bias]
    traced = torch.fx.symbolic_trace((lambda q, k, v: program(q, k, v)) if bias is None else (lambda q, k, v, b: program(q, k, v, b)))
    with torch.no_grad():
        call, plan, report = as_for_gpu(traced, inputs)
        got = call(*inputs)
    [got] = got if isinstance(got, (tuple, list)) else [got]
    shared = [t.repeat_interleave(heads // own, 1).double() for t in (k, v)]
    want = F.scaled_dot_product_attention(q.double(), *shared, attn_mask=None if bias is None else bias.double(), scale=0.2)
    if kind == "whole row":
        want[0] = 0
    want = want.transpose(1, 2).reshape(rows, 1, heads * depth) + 1
    assert "attention_query" in str(plan) and not [step.op for step in plan.steps if isinstance(step, Call)]
    torch.testing.assert_close(got.double(), want, rtol=2e-2, atol=2e-2)
