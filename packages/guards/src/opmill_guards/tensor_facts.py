"""A tensor compared with the facts of a guard, in Python: what the native checker falls back to, below both it and the guard's kind."""

from __future__ import annotations

from typing import Any

from .guard import TensorMatch


def _dims(expected: tuple[int | None, ...] | None, found: tuple[int, ...]) -> bool:
    if expected is None:
        return True
    return len(expected) == len(found) and all(e is None or e == f for e, f in zip(expected, found))


def dispatch_keys(tensor: Any) -> int:
    """The raw dispatch key set of a tensor."""
    import torch

    return int(torch._C._dispatch_keys(tensor).raw_repr())


def differences(guard: TensorMatch, tensor: Any) -> dict[str, tuple[Any, Any]]:
    """What of the guard's facts is not so: name of the fact to (expected, found)."""
    import torch

    exact: Any = type(tensor)
    if exact is not guard.type:
        return {"type": (guard.type.__qualname__, exact.__qualname__)}
    with torch._C.DisableTorchFunctionSubclass():  # the class of the tensor may have its own answers, and tell of being asked
        return _different_facts(guard, tensor)


def _different_facts(guard: TensorMatch, tensor: Any) -> dict[str, tuple[Any, Any]]:
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
        found |= _different_keys(guard.dispatch_keys, dispatch_keys(tensor))
    return found


def _different_keys(expected: int, found: int) -> dict[str, tuple[str, str]]:
    """By what people know: a tensor of inference mode has none of the keys of autograd."""
    had, has = _key_names(expected), _key_names(found)
    if had ^ has and all(name.startswith(("ADInplaceOrView", "Autograd")) for name in had ^ has):
        outside, inside = "outside of inference mode", "in inference mode"
        return {"made": (outside, inside) if had > has else (inside, outside)}
    return {"dispatch_keys": (", ".join(sorted(had - has)) or hex(expected), ", ".join(sorted(has - had)) or hex(found))}


def _key_names(keys: int) -> set[str]:
    import torch

    return set(str(torch._C.DispatchKeySet.from_raw_repr(keys)).removeprefix("DispatchKeySet(").rstrip(")").split(", "))


def holds(guard: TensorMatch, value: Any) -> bool:
    """Whether the guard's facts are those of ``value``."""
    return not differences(guard, value)
