"""Views that an operator gives several of (``unbind``, ``split``), where autograd knows them: it refuses writes to them, also outside of
the graph that made them."""

from __future__ import annotations

import torch

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


__all__ = ["is_one_of_several", "one_of_several"]
