"""What rule files are written with: a table of rows, and short ways to make meta tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .strides import contiguous, in_order, like
from .symbols.layouts import is_channels_last_strides

Rule = Callable[..., Any]
META = torch.device("meta")
_empty = torch.empty_strided


class Rules(dict[str, Rule]):
    """Rules by operator name without overload."""

    def row(self, names: str) -> Callable[[Rule], Rule]:
        """Declares that the decorated function answers for these operators (names without ``aten::``). It takes the operator's arguments
        as the operator does, with ``overload`` before them."""

        def add(fn: Rule) -> Rule:
            def rule(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
                return fn(overload, *args, **kwargs)

            self.update({f"aten::{n}": rule for n in names.split()})
            return fn

        return add


def dense(sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A contiguous result."""
    return _empty(sizes, contiguous(sizes), dtype=dtype, device=META)


def strided(sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A result of these strides."""
    return _empty(sizes, strides, dtype=dtype, device=META)


def alike(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A result of the sizes and layout of ``x``."""
    sizes = x.size()
    return _empty(sizes, like(sizes, x.stride()), dtype=dtype or x.dtype, device=META)


def channels_last(x: torch.Tensor) -> bool:
    """Whether eager takes ``x`` for channels-last: its strides say so, and do not say contiguous as well."""
    return is_channels_last_strides(x.size(), x.stride())


def image(sizes: Sequence[int], dtype: torch.dtype, last: bool) -> torch.Tensor:
    """A result of images, channels last or contiguous."""
    if not last:
        return dense(sizes, dtype)
    return strided(sizes, in_order(sizes, (1, *range(len(sizes) - 1, 1, -1), 0)), dtype)


__all__ = ["META", "Rule", "Rules", "alike", "channels_last", "dense", "image", "strided"]
