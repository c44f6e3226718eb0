"""What tells modules apart that no capture could share: classes, names of parts, and what their tensors look like."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import torch

from opmill_guards.reference import SEQUENCE_ITERATORS, TABLE_ITERATORS, ahead

ITERATORS = (*SEQUENCE_ITERATORS, *TABLE_ITERATORS)


def kind_of(module: torch.nn.Module) -> Hashable:
    """Equal for modules that one capture may serve, as far as that can be seen without knowing what is read of them: a few microseconds for
    each module inside. Modules that contain each other are looked at once. One whose ``__init__`` has not been run has no parts yet."""
    seen: dict[int, int] = {}

    def look(each: object) -> Hashable:
        if id(each) in seen:
            return seen[id(each)]
        seen[id(each)] = len(seen)
        own = each.__dict__
        return (
            type(each),
            *((name, look(part)) for name, part in (own.get("_modules") or {}).items() if part is not None),
            *((name, tensor_kind(t)) for table in ("_parameters", "_buffers") for name, t in (own.get(table) or {}).items()),
        )

    return look(module)


def tensor_kind(tensor: torch.Tensor) -> Hashable:
    """Class, element type, device and shape; of what has no shape yet, or is no tensor, its class."""
    kind: type = type(tensor)
    if not issubclass(kind, torch.Tensor) or torch.nn.parameter.is_lazy(tensor):
        return kind
    with torch._C.DisableTorchFunctionSubclass():
        return kind, tensor.dtype, tensor.device, tensor.shape


def kinds_among(values: Iterable[Any]) -> tuple[Hashable, ...]:
    """The kinds of modules among arguments, in tuples of them (the items of ``enumerate``, ``zip``, ``dict.items``), and those that loops
    come to next."""
    found: list[Hashable] = []
    for value in values:
        if issubclass(type(value), torch.nn.Module):  # isinstance would ask the program for its ``__class__``
            found.append(kind_of(value))
        elif type(value) is tuple:
            found += kinds_among(value)
        elif type(value) in ITERATORS and value.__length_hint__():
            found += kinds_among([ahead(value, 0)])
    return tuple(found)


__all__ = ["kind_of", "kinds_among"]
