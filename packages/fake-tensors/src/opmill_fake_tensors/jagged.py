"""Jagged tensors (``torch.nested``, layout ``torch.jagged``): rows of different lengths, one behind the other in ``_values``.

The size along which rows differ is no number. torch has a *ragged size* for it, an integer without a value that is known by the tensor of
offsets (or of lengths) that says where rows begin: two of them are equal where that is one object, and what else is asked of one torch
answers as in eager. A jagged tensor of fakes has the ragged size of its fake offsets."""

from __future__ import annotations

from typing import Any

import torch
from torch.nested._internal.nested_tensor import NestedTensor, _tensor_symint_registry

VALUES = "_values"
"""The attribute with the elements; the other tensors inside say where rows begin and end."""


def is_jagged(cls: Any) -> bool:
    """Whether tensors of a class are jagged."""
    return issubclass(cls, NestedTensor)


def is_ragged(value: Any) -> bool:
    """Whether a size is the one along which rows differ, or a multiple of it."""
    return type(value) is torch.SymInt and value.node.is_nested_int()


def ragged_size(tensor: Any) -> Any:
    """That of a jagged tensor."""
    return tensor._size[tensor._ragged_idx]


def says_rows(tensor: Any) -> bool:
    """Whether a ragged size is known by this tensor."""
    return tensor in _tensor_symint_registry


__all__ = ["VALUES", "is_jagged", "is_ragged", "ragged_size", "says_rows"]
