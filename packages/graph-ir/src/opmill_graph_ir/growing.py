"""Tensors of the caller that begin a new history when a graph has written to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_DEFAULT = torch._C._autograd.CreationMeta.DEFAULT


def may_write(tensor: torch.Tensor) -> bool:
    """Whether autograd knows a way to write to the tensor: not where it is a view whose history cannot be told anew, as one of several."""
    return not tensor._is_view() or bool(torch._C._autograd._get_creation_meta(tensor) == _DEFAULT)


def may_grow(tensor: torch.Tensor) -> bool:
    """Whether autograd lets operators write to the tensor; if not it raises, or warns, which is for eager to say. Nor may one that keeps
    its gradient: what the graph computes from it is a part of that."""
    if tensor.is_inference() or tensor.retains_grad:
        return False
    if not tensor._is_view():
        return not (tensor.is_leaf and (tensor.requires_grad or tensor.grad is not None))
    base = tensor._base
    return base is not None and not (base.requires_grad and base.is_leaf)


def grow(tensors: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
    """Tells autograd that each tensor, which has been written already, was computed from the result that shares its memory. That write is
    counted: autograd would count it again."""
    counts = [tensor._version for tensor in tensors]
    for tensor, result in zip(tensors, results, strict=True):
        _Grown.apply(tensor, result)
    torch._C._autograd._unsafe_set_version_counter(tuple(tensors), tuple(counts))


class _Grown(torch.autograd.Function):
    """``apply(tensor, result)``: what is asked of the tensor is asked of the result. What is left for the rest of what the tensor is a view
    of, autograd knows only where the part has zeros."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(tensor)
        ctx.of_view = tensor._is_view()
        return tensor

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, Any]:
        [gradient] = gradients
        return torch.zeros_like(gradient) if ctx.of_view else None, gradient


__all__ = ["grow", "may_grow", "may_write"]
