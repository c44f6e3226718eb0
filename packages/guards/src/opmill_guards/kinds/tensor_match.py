"""The facts of a tensor."""

from __future__ import annotations

from typing import Any

from .. import probe
from ..guard import TensorMatch
from .kind import Builder, Kind, Read


def _dims(expected: tuple[int | None, ...] | None, found: tuple[int, ...]) -> bool:
    if expected is None:
        return True
    return len(expected) == len(found) and all(e is None or e == f for e, f in zip(expected, found))


def dispatch_keys(tensor: Any) -> int:
    """The raw dispatch key set of a tensor."""
    import torch

    return int(torch._C._dispatch_keys(tensor).raw_repr())


def _differences(guard: TensorMatch, tensor: Any) -> dict[str, tuple[Any, Any]]:
    exact: Any = type(tensor)
    if exact is not guard.type:
        return {"type": (guard.type.__qualname__, exact.__qualname__)}
    found: dict[str, tuple[Any, Any]] = {}
    for name in ("dtype", "device", "layout"):
        if getattr(guard, name) != getattr(tensor, name):
            found[name] = getattr(guard, name), getattr(tensor, name)
    if "layout" in found:
        return found  # not every layout has strides to ask for
    if not _dims(guard.sizes, tuple(tensor.shape)):
        found["sizes"] = guard.sizes, tuple(tensor.shape)
    if guard.strides is not None and not _dims(guard.strides, tuple(tensor.stride())):
        found["strides"] = guard.strides, tuple(tensor.stride())
    if guard.requires_grad is not None and tensor.requires_grad != guard.requires_grad:
        found["requires_grad"] = guard.requires_grad, tensor.requires_grad
    if guard.dispatch_keys is not None and dispatch_keys(tensor) != guard.dispatch_keys:
        found["dispatch_keys"] = hex(guard.dispatch_keys), hex(dispatch_keys(tensor))
    return found


def holds(guard: TensorMatch, value: Any) -> bool:
    """Whether the guard's facts are those of ``value``."""
    return not _differences(guard, value)


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
    differences = _differences(guard, read(guard.source))
    return tuple(", ".join(f"{name} {pair[side]}" for name, pair in differences.items()) for side in (0, 1))  # type: ignore[return-value]


KIND = Kind(TensorMatch, 5, _check, _compile, _describe)
