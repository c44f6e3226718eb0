"""Operators of lists of tensors (``_foreach_mul_``), one tensor after the other: what torch does on processors.

As one call they give all results in memory of their own, from which they are copied to where they belong; apart they are loops like others.
On devices that have kernels for lists they stay what they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from opmill_runtime_cache.devices.registry import traits_of

aten = torch.ops.aten
PREFIX = "_foreach_"
_OVERLOADS = {
    "default": ("default",),
    "Scalar": ("Tensor_Scalar", "Scalar", "default"),
    "ScalarList": ("Tensor_Scalar", "Scalar", "default"),
    "List": ("Tensor_Tensor", "Tensor", "default"),
    "Tensor": ("Tensor",),
}
"""Of an operator of one tensor, the overloads for a kind of further arguments; the first that there is."""
_BY_NAME = {"norm": (1, "dtype"), "addcdiv": (2, "value"), "addcmul": (2, "value")}
"""How many arguments follow the first before one that operators of one tensor take by this name."""
_LEFT = {f"{name}.{kind}" for name in ("maximum", "minimum") for kind in ("Scalar", "ScalarList")} | {"max.default", "powsum.Scalar"}
"""Those that are not the operator of that name, or more than one."""
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def by_tensor(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call] | None:
    """The calls that ``func``, of a list, consists of, in order; None where it is to stay one."""
    name, kind = func._schema.name.removeprefix(f"aten::{PREFIX}"), func._overloadname
    plain = name.removesuffix("_")
    packet = getattr(aten, "linalg_vector_norm" if plain == "norm" else name, None)
    overload = next((o for o in _OVERLOADS.get(kind, ()) if o in packet.overloads()), None) if packet is not None else None
    if overload is None or f"{plain}.{kind}" in _LEFT or not _fits(kind, args):
        return None
    calls = []
    for k, tensor in enumerate(args[0]):
        own, named = [a[k] if isinstance(a, (list, tuple)) else a for a in args[1:]], dict(kwargs)
        before, by = _BY_NAME.get(plain, (len(own), ""))
        if len(own) > before:
            named[by] = own[before]
        calls.append((getattr(packet, overload), (tensor, *own[:before]), named))
    return calls


def _fits(kind: str, args: Sequence[Any]) -> bool:
    """Whether torch takes the lists, and goes through them tensor by tensor."""
    first, *rest = args
    lists = [a for a in args if isinstance(a, (list, tuple))]
    tensors = [t for t in (*(t for a in lists for t in a), *rest) if isinstance(t, torch.Tensor)]
    return (
        isinstance(first, (list, tuple))
        and len(first) > 0
        and all(len(a) == len(first) for a in lists)
        and all(traits_of(t.device.type).processor for t in tensors)
        and (kind != "Tensor" or (isinstance(rest[0], torch.Tensor) and rest[0].dim() == 0))
    )


__all__ = ["PREFIX", "by_tensor"]
