"""What has no fakes, and which device is meant."""

from __future__ import annotations

import torch


def unlike(tensor: torch.Tensor) -> str | None:
    """What of a tensor no fake is like: its elements do not lie in memory by strides, or are no numbers by themselves."""
    if tensor.layout is not torch.strided:
        return f"layout {tensor.layout}"
    if tensor.is_nested:
        return "a nested tensor"
    return f"a quantized tensor ({tensor.dtype})" if tensor.is_quantized else None


def numbered(device: torch.device) -> torch.device:
    """The device itself where only its kind is named: of GPUs, the current one."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device() if torch.cuda.is_initialized() else 0)


__all__ = ["numbered", "unlike"]
