"""Pointwise operators of complex numbers with symbolic sizes. Of others torch's meta kernels tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..strides import like
from ..table import Rules, dense
from .pointwise import laid_out, result_type

RULES: dict[str, Callable[..., Any]] = {}
SYMBOLIC = Rules()
Tensor = torch.Tensor
_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat)


def _pointwise(args: Sequence[Any], kwargs: Mapping[str, Any], typed: Callable[[torch.dtype], torch.dtype]) -> Any:
    operands = [a for a in args if isinstance(a, (Tensor, *_NUMBERS))]
    if not any(a.is_complex() if isinstance(a, Tensor) else type(a) is complex for a in operands) or kwargs.keys() - {"alpha"}:
        return NotImplemented
    common = result_type(operands)
    return laid_out([_taken(a, common) for a in operands if isinstance(a, Tensor)], typed(common))


def _taken(x: Tensor, common: torch.dtype) -> Tensor:
    """An operand as the loop sees it: what is marked as conjugated, or of another type, is a copy."""
    marked = x.is_conj() or x.is_neg()
    return torch.empty_strided(x.size(), like(x.size(), x.stride()), dtype=common, device="meta") if marked or x.dtype is not common else x


@SYMBOLIC.row("add sub rsub mul div true_divide neg exp log sqrt rsqrt reciprocal sin cos tan sinh cosh tanh sigmoid sgn")
def _numbers(overload: str, *args: Any, **kwargs: Any) -> Any:
    return _pointwise(args, kwargs, lambda common: common)


@SYMBOLIC.row("abs")
def _abs(overload: str, x: Tensor) -> Any:
    return _pointwise((x,), {}, lambda common: common.to_real())


@SYMBOLIC.row("angle")
def _angle(overload: str, x: Tensor) -> Any:
    return dense(x.size(), x.dtype.to_real()) if x.is_complex() else NotImplemented


@SYMBOLIC.row("eq ne isnan isinf isfinite")
def _truths(overload: str, *args: Any, **kwargs: Any) -> Any:
    return _pointwise(args, kwargs, lambda common: torch.bool)


@SYMBOLIC.row("_conj_physical conj_physical")
def _conj_physical(overload: str, x: Tensor) -> Any:
    return _pointwise((x,), {}, lambda common: common)
