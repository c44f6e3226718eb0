"""What calls give, and whether two of these are the same: types, structure and values."""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable
from typing import Any

import torch

Compare = Callable[[torch.Tensor, torch.Tensor], bool]
"""Whether two tensors of one dtype and shape hold the same."""


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Item by item; what is no number is as another that is none."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


def near(rtol: float = 1e-5, atol: float = 1e-6) -> Compare:
    return lambda a, b: torch.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True)


def same(a: Any, b: Any, values: Compare = equal, parts: tuple[type, ...] = ()) -> bool:
    """Whether two results are alike: tensors also in dtype, strides and whether they require grad. ``parts``: classes whose objects are
    compared by their attributes, as those of data classes are."""
    if type(a) is not type(b):
        return False

    def each(mine: Any, other: Any) -> bool:
        return len(mine) == len(other) and all(same(m, o, values, parts) for m, o in zip(mine, other, strict=True))

    if isinstance(a, torch.Tensor):
        told = [(t.dtype, t.shape, t.stride(), t.requires_grad) for t in (a, b)]
        return told[0] == told[1] and values(a.detach(), b.detach())
    if isinstance(a, (list, tuple, collections.deque)):
        return each(a, b)
    if isinstance(a, dict):
        return each([*a], [*b]) and each([*a.values()], [*b.values()])
    if (dataclasses.is_dataclass(a) and not isinstance(a, type)) or isinstance(a, (types.SimpleNamespace, *parts)):
        return same(vars(a), vars(b), values, parts)
    if isinstance(a, (float, complex)):
        return same(torch.tensor(a, dtype=torch.complex128), torch.tensor(b, dtype=torch.complex128), values)
    return bool(a == b)


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """What a call gives: its result, or name and text of the exception that it raises."""
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error)
