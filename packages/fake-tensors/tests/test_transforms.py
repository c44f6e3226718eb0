"""Fourier transforms beside eager."""

from __future__ import annotations

import pytest
import torch
from beside_eager import as_eager, layouts

NAMES = "fft ifft rfft irfft hfft ihfft"


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", NAMES.split())
def test_along_one_dimension(name, dtype):
    for x in layouts(3, 4, 5, dtype=dtype):
        for dim in (-1, 0, 1):
            as_eager(lambda x, dim=dim: getattr(torch.fft, name)(x, dim=dim), x)
        as_eager(lambda x: getattr(torch.fft, name)(x, n=8, norm="ortho"), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "rfftn", "irfftn"])
def test_along_several(name, dtype):
    for x in layouts(3, 4, 5, dtype=dtype):
        as_eager(getattr(torch.fft, name), x)
        as_eager(lambda x: getattr(torch.fft, name)(x, dim=(0, 2)), x)
        as_eager(lambda x: getattr(torch.fft, name)(x, dim=(1, 0)), x)
