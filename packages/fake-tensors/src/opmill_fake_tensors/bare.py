"""Torch without what it wraps around operators: for tensors that are looked at, or computed with, as they are."""

from __future__ import annotations

from typing import Any

import torch

no_dispatch = torch._C._DisableTorchDispatch
"""``with no_dispatch():`` operators go to torch's own kernels, past modes and classes of tensors."""
_LEVELS = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.FuncTorchDynamicLayerBackMode
)


def no_levels() -> Any:
    """``with no_levels():`` inside of a function transform, what is made is no tensor of its level."""
    return torch._C._ExcludeDispatchKeyGuard(_LEVELS)
