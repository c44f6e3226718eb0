"""Jagged tensors (``torch.nested``, layout ``torch.jagged``): rows of different lengths, one behind the other in ``_values``.

The size along which rows differ is no number. torch has a *ragged size* for it, an integer without a value that is known by the tensor of
offsets (or of lengths) that says where rows begin: two of them are equal where that is one object, and what else is asked of one torch
answers as in eager. A jagged tensor of fakes has the ragged size of its fake offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nested._internal.nested_tensor import NestedTensor, _tensor_symint_registry, get_tensor_symint

from .symbols.ragged import RaggedNode

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


def sizes_inside(fake: Any) -> list[Any]:
    """Sizes and strides of a fake, or of all that is inside of a jagged one."""
    inside = [getattr(fake, name) for name in fake.__tensor_flatten__()[0]] if is_jagged(type(fake)) else [fake]
    return [n for part in inside for n in (*part.shape, *part.stride())]


def rows_among(names: Sequence[str]) -> str:
    """The attribute with the tensor that the ragged size is known by."""
    return "_lengths" if "_lengths" in names else "_offsets"


def speak_of_rows(rows: torch.Tensor) -> None:
    """Gives a fake that rows of a jagged tensor will be known by its ragged size, which symbolic sizes can be multiplied with."""
    if rows not in _tensor_symint_registry:
        _tensor_symint_registry[rows] = torch.SymInt(RaggedNode(get_tensor_symint(rows).node.t_id, 1))


def says_rows(tensor: Any) -> bool:
    """Whether a ragged size is known by this tensor."""
    return tensor in _tensor_symint_registry


__all__ = ["VALUES", "is_jagged", "is_ragged", "ragged_size", "rows_among", "says_rows", "sizes_inside", "speak_of_rows"]
