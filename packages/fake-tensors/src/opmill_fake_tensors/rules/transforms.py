"""Fourier transforms of symbolic sizes along one or two dimensions, as MKL lays them out. Of others torch's own answer is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..strides import in_order
from ..table import Rules, alike, strided

RULES: dict[str, Callable[..., Any]] = {}
SYMBOLIC = Rules()
Tensor = torch.Tensor


def _transformed(x: Tensor, dims: Sequence[int], sizes: Sequence[Any], dtype: torch.dtype) -> Any:
    """The dimensions that are transformed lie inside, in their order, the others around them as they were."""
    if not 0 < len(dims) <= 2 or not torch.backends.mkl.is_available():
        return NotImplemented
    x = alike(x) if x.is_conj() or x.is_neg() else x  # transforms are given a copy of what is marked
    others = sorted((d for d in range(x.dim()) if d not in dims), key=lambda d: -x.stride()[d])
    return strided(sizes, in_order(sizes, [*others, *dims][::-1]), dtype)


def _dims(x: Tensor, dims: Sequence[int]) -> list[int]:
    return [d % x.dim() for d in dims]


@SYMBOLIC.row("_fft_c2c")
def _complex(overload: str, x: Tensor, dims: Sequence[int], normalization: int, forward: bool) -> Any:
    return _transformed(x, sorted(_dims(x, dims), key=lambda d: -x.stride()[d]), x.size(), x.dtype)


@SYMBOLIC.row("_fft_r2c")
def _from_real(overload: str, x: Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Any:
    dims, sizes = _dims(x, dims), list(x.size())
    if onesided and dims:
        sizes[dims[-1]] = sizes[dims[-1]] // 2 + 1
    return _transformed(x, dims, sizes, x.dtype.to_complex())


@SYMBOLIC.row("_fft_c2r")
def _to_real(overload: str, x: Tensor, dims: Sequence[int], normalization: int, last: Any) -> Any:
    dims, sizes = _dims(x, dims), list(x.size())
    if dims:
        sizes[dims[-1]] = last
    return _transformed(x, dims, sizes, x.dtype.to_real())
