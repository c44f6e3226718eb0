"""Arguments of attention such that torch finds a fused kernel for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of


def _with_rows(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """On GPUs fused attention takes masks whose rows lie in memory, and torch falls back to separate products in float32 for others, such
    as one expanded from a single value. Writing the mask out costs little beside that."""
    mask = kwargs.get("attn_mask", args[3] if len(args) > 3 else None)
    if (
        not isinstance(mask, torch.Tensor)
        or not traits_of(mask.device.type).matrix_units
        or mask.dim() < 2
        or mask.requires_grad
        or mask.stride(-1) == 1
    ):
        return args, kwargs
    laid = torch.ops.aten.clone.default(mask, memory_format=torch.contiguous_format)
    if "attn_mask" in kwargs:
        return args, {**kwargs, "attn_mask": laid}
    return (*args[:3], laid, *args[4:]), kwargs


PREPARED: dict[Callable[..., Any], Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]] = {
    torch.nn.functional.scaled_dot_product_attention: _with_rows,
}
"""Functions whose arguments are seen to before they are taken apart."""
