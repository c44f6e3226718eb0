"""Matrix products and attention beside eager."""

from __future__ import annotations

import itertools

import pytest
import torch
from beside_eager import as_eager, layouts

F = torch.nn.functional
DTYPES = [torch.float32, torch.int32, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(3, 4, 5), (1, 4, 1), (3, 0, 5)], ids=str)
def test_products(sizes, dtype):
    m, k, n = sizes
    for a, b in itertools.product(layouts(m, k, dtype=dtype), layouts(k, n, dtype=dtype)):
        as_eager(torch.mm, a, b)
        as_eager(torch.matmul, a, b)
        for x in (torch.ones(n), torch.ones(m, 1), torch.ones(()), torch.ones(m, n), torch.ones(2, n)):
            as_eager(torch.addmm, x.to(dtype), a, b)
            as_eager(lambda x, a, b: torch.addmm(x, a, b, beta=0.5, alpha=2), x.to(dtype), a, b)
    for a in layouts(m, k, dtype=dtype) if m and k else ():
        as_eager(torch.mv, a, torch.ones(k, dtype=dtype))
        as_eager(torch.addmv, torch.ones(m, dtype=dtype), a, torch.ones(k, dtype=dtype))
        as_eager(torch.addmv, torch.ones(1, dtype=dtype), a, torch.ones(k, dtype=dtype))
        as_eager(F.linear, a, torch.ones(n, k, dtype=dtype), torch.ones(n, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (0, 3, 4, 5), (2, 1, 0, 1)], ids=str)
def test_batches_of_products(sizes, dtype):
    b, m, k, n = sizes
    for one, other in itertools.product(layouts(b, m, k, dtype=dtype), layouts(b, k, n, dtype=dtype)):
        as_eager(torch.bmm, one, other)
        as_eager(torch.matmul, one, other[0] if b else other)
        as_eager(torch.baddbmm, torch.ones(b, 1, n, dtype=dtype), one, other)
        as_eager(torch.baddbmm, torch.ones(1, dtype=dtype), one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, dtype):
    for q in layouts(2, 3, 4, 8, dtype=dtype):
        for k in layouts(2, 3, 4, 8, dtype=dtype):
            as_eager(lambda q, k: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, k, 0.0, causal), q, k)
            as_eager(lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=causal), q, k)


@pytest.mark.parametrize("length", [1, 5])
def test_gradients_of_attention(length):
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    def gradients(q: torch.Tensor, k: torch.Tensor) -> object:
        out, sums = attention(q, k, k)
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(out, q, k, k, out, sums, 0.0, False)

    for q, k in zip(layouts(2, 3, length, 8), layouts(2, 3, 4, 8), strict=True):
        as_eager(gradients, q, k)
