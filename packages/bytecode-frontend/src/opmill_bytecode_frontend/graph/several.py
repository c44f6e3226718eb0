"""Views that autograd refuses writes to, also outside of the graph that made them: those that an operator gives several of (``unbind``,
``split``), of leaves, and such from ``no_grad``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from .versions import memory

if TYPE_CHECKING:
    from ..values.tensor import TensorValue

_autograd = torch._C._autograd
SEVERAL = _autograd.CreationMeta.MULTI_OUTPUT_NODE


def is_one_of_several(fake: torch.Tensor) -> bool:
    """Whether autograd knows the tensor as one of several views, to which it refuses writes."""
    return fake.requires_grad and not fake.is_inference() and fake._is_view() and _autograd._get_creation_meta(fake) == SEVERAL


def one_of_several(tensor: torch.Tensor) -> torch.Tensor:
    """What a graph gave, as such a view."""
    if not tensor.requires_grad:
        return tensor
    if not tensor._is_view():
        with torch.enable_grad():
            tensor = tensor.view_as(tensor)
    _autograd._set_creation_meta(tensor, SEVERAL)
    return tensor


def is_refused(tensor: torch.Tensor) -> bool:
    """Whether a tensor of before the call is such a view."""
    if not tensor.requires_grad or tensor.is_inference() or not tensor._is_view():
        return False
    base = tensor._base
    of_leaf = base is not None and base.requires_grad and base.is_leaf
    return of_leaf or _autograd._get_creation_meta(tensor) != _autograd.CreationMeta.DEFAULT


def is_of_inference(real: object) -> bool:
    """Whether a tensor of before the call was made in inference mode."""
    return isinstance(real, torch.Tensor) and real.is_inference()


def refused_write(
    fake: torch.Tensor, given_leaves: Iterable[torch.Tensor], values: Iterable[TensorValue], inference: bool = False
) -> str | None:
    """Why eager would refuse a write that what stands for the tensor does not; None where it does not. ``inference``: it is written in
    inference mode."""
    if any(each is fake for each in given_leaves):
        return "it is to a leaf whose data was assigned"
    if not inference and any(is_of_inference(each.obj) and memory(each.fake) == memory(fake) for each in values):
        return "it is to a tensor of inference mode, outside of it"
    if fake.requires_grad and torch.is_grad_enabled():
        outside = [each for each in values if each.obj is not None and memory(each.fake) == memory(fake)]
        if any(is_refused(each.obj) for each in outside if isinstance(each.obj, torch.Tensor)):
            return "it is to a view of a leaf, one of several, or one from no_grad"
    return None


__all__ = ["is_one_of_several", "one_of_several", "refused_write"]
