"""Torch's questions about the layout of a tensor, over integers that may be symbolic: comparing them decides."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .asking import typically


def _filled(sizes: Sequence[Any], strides: Sequence[Any], order: Sequence[int]) -> bool:
    """Whether the dimensions, from the innermost out in ``order``, fill a block of memory."""
    step: Any = 1
    for d in order:
        if not typically(sizes[d] == 1):
            if not typically(strides[d] == step):
                return False
            step = step * sizes[d]
    return True


def is_contiguous(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Row-major; tensors without elements are."""
    return any(typically(n == 0) for n in sizes) or _filled(sizes, strides, range(len(sizes) - 1, -1, -1))


def in_rows(x: torch.Tensor) -> bool:
    """Whether a meta tensor is contiguous, whatever its sizes are."""
    return is_contiguous(x.size(), x.stride()) if x._has_symbolic_sizes_strides else x.is_contiguous()


def _channels_last_contiguous(sizes: Sequence[Any], strides: Sequence[Any], rank: int) -> bool:
    return len(sizes) == rank and _filled(sizes, strides, (1, *range(rank - 1, 1, -1), 0))


def is_channels_last_strides(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Channels innermost by the strides, which must not say contiguous as well (a batch of one image of one pixel does)."""
    rank = len(sizes)
    if rank not in (4, 5) or typically(strides[1] == 0):
        return False
    least: Any = 0
    for d in (1, *range(rank - 1, 1, -1), 0):
        if typically(sizes[d] == 0) or typically(strides[d] < least) or (d == 0 and typically(least == strides[1])):
            return False
        least = strides[d] * sizes[d] if typically(sizes[d] > 1) else strides[d]
    return True


def is_non_overlapping_and_dense(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether the elements fill a block of memory in some order of the dimensions."""

    def by_stride(a: int, b: int) -> int:
        return 0 if typically(strides[a] == strides[b]) else -1 if typically(strides[a] < strides[b]) else 1

    order = sorted((d for d in range(len(sizes)) if not typically(sizes[d] == 1)), key=functools.cmp_to_key(by_stride))
    return any(typically(n == 0) for n in sizes) or _filled(sizes, strides, order)


QUESTIONS: dict[str, Callable[[Sequence[Any], Sequence[Any]], bool]] = {
    "is_contiguous": is_contiguous,
    "is_channels_last_contiguous_2d": functools.partial(_channels_last_contiguous, rank=4),
    "is_channels_last_contiguous_3d": functools.partial(_channels_last_contiguous, rank=5),
    "is_channels_last_strides_2d": lambda sizes, strides: len(sizes) == 4 and is_channels_last_strides(sizes, strides),
    "is_channels_last_strides_3d": lambda sizes, strides: len(sizes) == 5 and is_channels_last_strides(sizes, strides),
    "is_non_overlapping_and_dense": is_non_overlapping_and_dense,
}
"""By the name of the method that torch calls."""
