"""What tells modules apart that no capture could share: classes, names of parts, and what their tensors look like; and functions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from types import BuiltinFunctionType, CellType, FunctionType, MethodType
from typing import Any, cast

import torch

from opmill_guards import CompiledFunction
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


def kind_of_function(function: FunctionType, depth: int = 8) -> Hashable:
    """Equal for functions that one capture may serve: of one piece of code, with the same functions, kinds of modules and classes in their
    cells as far as these are filled. (Decorators give all that they decorate one piece of code.) Keeps no function."""
    code, cells = function.__code__, function.__closure__ or ()
    kinds = tuple(kind_of_content(cell, depth - 1) for cell in cells) if depth else len(cells)
    defaults = None if function.__defaults__ is None else len(function.__defaults__)
    named = None if function.__kwdefaults__ is None else tuple(function.__kwdefaults__)
    return id(code), id(function.__globals__), defaults, named, kinds


def kind_of_content(cell: CellType, depth: int) -> Hashable:
    """What a cell holds, as far as a capture depends on that alone. Runs none of the program's code."""
    try:
        content: object = cell.cell_contents
    except ValueError:
        return "nothing"
    if type(content) is CompiledFunction:
        content = content.__wrapped__
    if type(content) is FunctionType:
        return kind_of_function(content, depth)
    if type(content) is MethodType and type(content.__func__) is FunctionType:
        return name_of(type(content.__self__)), kind_of_function(content.__func__, depth)
    if issubclass(type(content), torch.nn.Module):
        return kind_of(cast(torch.nn.Module, content))
    if type(content) is BuiltinFunctionType:
        return content.__qualname__
    return name_of(content) if issubclass(type(content), type) else name_of(type(content))


def name_of(kind: object) -> Hashable:
    """Of a class; unlike the class it may be kept."""
    return type.__getattribute__(kind, "__module__"), type.__getattribute__(kind, "__qualname__")


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


__all__ = ["kind_of", "kind_of_function", "kinds_among"]
