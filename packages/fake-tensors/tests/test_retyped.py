"""Memory read as elements of another type, beside eager."""

from __future__ import annotations

import pytest
import torch
from beside_eager import as_eager, layouts

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.uint8, torch.int64, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("to", DTYPES, ids=str)
def test_views_as_another_type(dtype, to):
    for x in (*layouts(2, 3, 8, dtype=dtype), *layouts(dtype=dtype), *layouts(8, dtype=dtype), *layouts(0, 8, dtype=dtype)):
        as_eager(lambda x: x.view(to), x)


def test_complex_numbers_and_their_parts():
    for x in layouts(2, 3, 4, dtype=torch.complex64):
        for call in (torch.view_as_real, torch.real, torch.imag, torch.conj, torch.resolve_conj, torch.conj_physical):
            as_eager(call, x)
    for x in (*layouts(3, 4, 2), *layouts(2)):
        as_eager(torch.view_as_complex, x)
        as_eager(lambda x: torch.view_as_real(torch.view_as_complex(x)), x)
        as_eager(torch._neg_view, x)
