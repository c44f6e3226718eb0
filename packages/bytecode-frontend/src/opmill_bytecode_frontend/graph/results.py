"""What operations take and give beside tensors."""

from __future__ import annotations

import enum

import torch

#: Python objects that may stand in a graph as arguments.
PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, type(...), slice),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.Generator),
)
ANSWERS = (*PLAIN, torch.SymInt, torch.SymBool, torch.SymFloat)


def is_member(value: object) -> bool:
    """Whether the text of a graph can name it: a member of an enumeration."""
    return isinstance(value, enum.Enum) and type(value).__members__.get(value.name or "") is value


def is_answer(result: object) -> bool:
    """Whether what an operation gave tells of its arguments only what guards and sizes say, too."""
    if isinstance(result, (tuple, list)):
        return all(map(is_answer, result))
    return isinstance(result, ANSWERS)


def contains_tensor(result: object) -> bool:
    """Whether a tensor is somewhere in nested lists, tuples and dictionaries."""
    if isinstance(result, (tuple, list)):
        return any(contains_tensor(r) for r in result)
    if type(result) is dict:
        return any(map(contains_tensor, result.values()))
    return isinstance(result, torch.Tensor)


def on_processor(values: object) -> bool:
    """Whether all tensors in nested lists, tuples and dictionaries are on a processor, or nowhere."""
    if isinstance(values, (tuple, list)):
        return all(map(on_processor, values))
    if type(values) is dict:
        return all(map(on_processor, values.values()))
    return not isinstance(values, torch.Tensor) or values.device.type in ("cpu", "meta")


__all__ = ["PLAIN", "contains_tensor", "is_answer", "on_processor"]
