"""The bytes of a tensor's elements. Without NumPy, which torch does not require."""

from __future__ import annotations

import ctypes

import torch


def content_of(tensor: torch.Tensor) -> bytes:
    """The elements of a tensor on any device in row-major order, as they lie in memory."""
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(dense.data_ptr(), dense.nbytes) if dense.numel() else b""
