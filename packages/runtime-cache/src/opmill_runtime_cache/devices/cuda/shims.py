"""torch's C functions for operators on GPUs."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache

from ..cpu import SHIMS as HOST_SHIMS
from ..loading import torch_library

SHIMS: dict[str, tuple[str, str]] = {
    "aten::_scaled_dot_product_flash_attention_backward": (
        "aoti_torch_cuda__scaled_dot_product_flash_attention_backward",
        "TTTTTTTTIIFBTTE>3",
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": (
        "aoti_torch_cuda__scaled_dot_product_efficient_attention_backward",
        "TTTTTTTTTFMBE>4",
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": (
        "aoti_torch_cuda__scaled_dot_product_cudnn_attention_backward",
        "TTTTTTTTTTTIIFBE>3",
    ),
    "aten::_scaled_dot_product_flash_attention": ("aoti_torch_cuda__scaled_dot_product_flash_attention", "TTTFBBE>9"),
    "aten::_scaled_dot_product_efficient_attention": ("aoti_torch_cuda__scaled_dot_product_efficient_attention", "TTTOBFBE>4"),
    "aten::_scaled_dot_product_cudnn_attention": ("aoti_torch_cuda__scaled_dot_product_cudnn_attention", "TTTOBFBBE>9"),
    **{
        op: (symbol.replace("_cpu_", "_cuda_", 1), signature)
        for op, (symbol, signature) in HOST_SHIMS.items()
        if op.startswith("aten::") and "_for_cpu" not in op
    },
}
"""As ``cpu.SHIMS``, for tensors on GPUs."""


@lru_cache(None)
def shim(op: str) -> tuple[str, str] | None:
    """The shim of an operator, where this torch has it: torch offers fewer of them for GPUs."""
    found = SHIMS.get(op)
    if found is None or not os.path.exists(torch_library("torch_cuda")):
        return None
    return found if hasattr(ctypes.CDLL(torch_library("torch_cuda")), found[0]) else None


__all__ = ["SHIMS", "shim"]
