"""Quantization. Tensors of quantized numbers have no fakes; numbers rounded as if they were quantized do."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import NoFakeKernel
from ..table import Rules, alike

RULES = Rules()


@RULES.row("quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel")
def _quantize(overload: str, x: Any, *rest: Any, **options: Any) -> Any:
    """Torch's meta kernel takes the new element type for the old one."""
    raise NoFakeKernel("aten::quantize", "it gives a quantized tensor")


@RULES.row(
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
)
def _rounded(overload: str, x: torch.Tensor, *rest: Any, **options: Any) -> Any:
    """The rounded numbers, and which of them lay in the range."""
    return alike(x), alike(x, torch.bool)
