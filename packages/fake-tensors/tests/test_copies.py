"""Copies and conversions beside eager."""

from __future__ import annotations

import pytest
import torch
from beside_eager import as_eager, layouts

FORMATS = [torch.preserve_format, torch.contiguous_format, torch.channels_last, torch.channels_last_3d]
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("sizes", [(), (3,), (2, 3), (2, 3, 4, 5), (1, 3, 1, 5), (2, 1, 4, 5), (2, 3, 2, 3, 2), (2, 0, 3, 4)], ids=str)
def test_copies_and_their_formats(sizes, form):
    for x in layouts(*sizes):
        as_eager(lambda x: x.clone(memory_format=form), x)
        as_eager(lambda x: x.contiguous(memory_format=form), x)
        as_eager(lambda x: x.to(memory_format=form), x)
        as_eager(lambda x: x.to(torch.float64, memory_format=form), x)
        as_eager(lambda x: torch.empty_like(x, memory_format=form), x)
        as_eager(lambda x: torch.zeros_like(x, memory_format=form, dtype=torch.int32), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("to", DTYPES, ids=str)
def test_conversions(dtype, to):
    for x in layouts(2, 3, 4, dtype=dtype):
        as_eager(lambda x: x.to(to), x)
        as_eager(lambda x: x.to(to, copy=True), x)
        as_eager(lambda x: x.type(to), x)
        as_eager(lambda x: x.to(torch.ones((), dtype=to)), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_writes_into_a_copy(dtype):
    for x in layouts(2, 3, dtype=dtype):
        for source in (torch.ones(2, 3), torch.ones(3, dtype=torch.int64), torch.ones(()), torch.ones(3, 2).t(), torch.ones(1, 2, 3)):
            as_eager(lambda x, source: torch.clone(x).copy_(source), x, source)
        as_eager(lambda x: torch.clone(x).zero_(), x)
        as_eager(lambda x: torch.clone(x).fill_(1), x)


def test_conjugates_are_written_out():
    for x in layouts(2, 3, dtype=torch.complex64):
        as_eager(lambda x: x.conj().clone(), x)
        as_eager(lambda x: x.conj().resolve_conj(), x)
        as_eager(lambda x: x.conj().imag.clone(), x)
        as_eager(lambda x: x.conj().to(torch.complex128), x)
