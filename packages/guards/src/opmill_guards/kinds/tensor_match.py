"""The facts of a tensor."""

from __future__ import annotations

from typing import Any

from .. import probe
from ..guard import TensorMatch
from ..tensor_facts import differences, dispatch_keys, holds
from .kind import Builder, Kind, Read


def of(source: Any, tensor: Any, *, requires_grad: bool = True, keys: bool = True) -> TensorMatch:
    """All facts of a tensor as they are now. ``requires_grad`` and ``keys``: whether to hold these too."""
    import torch

    return TensorMatch(
        source,
        type(tensor),
        tensor.dtype,
        tensor.device,
        tensor.layout,
        tuple(tensor.shape),
        tuple(tensor.stride()) if tensor.layout is torch.strided else None,
        tensor.requires_grad if requires_grad else None,
        dispatch_keys(tensor) if keys else None,
    )


def description(guard: TensorMatch) -> tuple[Any, ...]:
    """The guard as ``native/tensor.cpp`` takes it; what cannot be checked natively is left to :func:`holds`."""
    code, device = probe.dtype_code(guard.dtype), probe.device_code(guard.device)
    if device is None or str(guard.layout) != "torch.strided":
        code, device = None, (0, 0)
    sizes = None if guard.sizes is None else tuple(guard.sizes)
    strides = None if guard.strides is None else tuple(guard.strides)
    return guard, guard.type, code, *device, sizes, strides, guard.requires_grad, guard.dispatch_keys


def _check(guard: TensorMatch, read: Read) -> bool:
    return holds(guard, read(guard.source))


def _compile(guard: TensorMatch, into: Builder) -> None:
    into.leaf(guard.source, "tensor", description(guard), KIND.cost)


def _describe(guard: TensorMatch, read: Read) -> tuple[str, str]:
    found = differences(guard, read(guard.source))
    wanted, got = (", ".join(f"{name} {pair[side]}" for name, pair in found.items()) for side in (0, 1))
    return wanted, got


KIND = Kind(TensorMatch, 5, _check, _compile, _describe)
