"""Tensors with symbolic sizes: how their fakes are laid out, and operators whose results no row gives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .operator import Operator
from .strides import extent
from .symbols import Index, Sizes, index, sym_int
from .tensor import FakeTensor

META = torch.device("meta")


def symbolic_meta(
    tensor: torch.Tensor, symbolic: Mapping[int, Index | None], sizes: Sizes, label: str = "x", moving: Collection[int] = ()
) -> torch.Tensor:
    """A meta tensor of the rank, type and hints of ``tensor`` whose dimensions in ``symbolic`` are these symbols (None: a new one).

    Strides that are products of sizes and inner strides, as far as the numbers tell, are written so. Others stay numbers, but those of
    ``moving``, which are symbols."""
    lengths = [index(n) for n in tensor.shape]
    for dim, symbol in symbolic.items():
        lengths[dim] = sizes.new(tensor.size(dim), origin=f"{label}.size({dim})") if symbol is None else symbol
    strides = stride_expressions(tensor.shape, tensor.stride(), lengths)
    for dim in moving:
        if strides[dim].constant is not None and tensor.stride(dim) >= 2:
            strides[dim] = sizes.new(tensor.stride(dim), origin=f"{label}.stride({dim})")
    shape, steps = [sym_int(sizes, n) for n in lengths], [sym_int(sizes, s) for s in strides]
    return meta_tensor(shape, steps, tensor.storage_offset(), tensor.dtype)


def meta_tensor(shape: Sequence[Any], strides: Sequence[Any], offset: Any, dtype: torch.dtype) -> torch.Tensor:
    """A meta tensor of this geometry, in a storage that it fits into."""
    if offset == 0:
        return torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype, device=META)
    span = 0 if any(type(n) is int and n == 0 for n in shape) else extent(shape, strides)
    return torch.as_strided(torch.empty((offset + span,), dtype=dtype, device=META), tuple(shape), tuple(strides), offset)


def item_at(x: torch.Tensor, at: Any) -> torch.Tensor:
    """``x[at]`` for a number that may be symbolic, or a tensor that holds one: torch's subscripts turn it into an integer."""
    if (
        isinstance(at, FakeTensor)
        and at.dim() == 0
        and at.constant is None
        and not (at.is_floating_point() or at.is_complex() or at.dtype is torch.bool)
    ):
        at = at.item()
    return torch.select(x, 0, at) if type(at) is torch.SymInt else x[at]


def stride_expressions(shape: Sequence[int], strides: Sequence[int], lengths: Sequence[Index]) -> list[Index]:
    """The strides as products of ``lengths`` where they are those of neighbours in memory."""
    out: list[Index] = [index(s) for s in strides]
    before: list[int] = []
    for d in sorted(range(len(shape)), key=lambda d: (strides[d], -d)):
        for inner in reversed(before):
            if strides[inner] > 0 and strides[d] == strides[inner] * shape[inner]:
                out[d] = out[inner] * lengths[inner]
                break
        before.append(d)
    return out


def any_symbolic(args: Sequence[Any]) -> bool:
    """Whether sizes of a meta tensor, or a number, are symbolic."""
    for a in args:
        if isinstance(a, torch.Tensor):
            if a._has_symbolic_sizes_strides:
                return True
        elif isinstance(a, (list, tuple)):
            if any_symbolic(a):
                return True
        elif isinstance(a, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return True
    return False


def fixed_sizes(values: Any) -> tuple[Any, dict[int, tuple[torch.Tensor, torch.Tensor]]]:
    """Nested arguments with integers for symbolic numbers and tensors of integer sizes for others: their values are assumed from now on.
    Also each such tensor and the one that it stands for, by the ``id`` of the first."""
    stands_for: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def number(value: Any) -> Any:
        convert = _CONVERT.get(type(value))
        return value if convert is None else convert(value)

    return _in_numbers(values, number, stands_for), stands_for


def at_hints(values: Any) -> Any:
    """Nested arguments as they are in the call that is captured; nothing is assumed by that. None where only data tell some of them."""

    def number(value: Any) -> Any:
        if type(value) not in _CONVERT:
            return value
        if not value.node.has_hint():
            raise LookupError
        return value.node.hint

    try:
        return _in_numbers(values, number, {})
    except LookupError:
        return None


def promised_otherwise(op: Operator, metas: list[Any], kwargs: dict[str, Any], made: Any) -> bool:
    """Whether torch's kernel in Python, which gave ``made``, promises another layout than its kernel for processors has:
    found out for the sizes of the call that is captured."""
    with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
        promised = pytree.tree_map_only(FakeTensor, lambda fake: fake.meta, made)
        return op.lies_otherwise(at_hints(metas), at_hints(kwargs), at_hints(promised))


_CONVERT: dict[type, Callable[[Any], Any]] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def _in_numbers(value: Any, number: Callable[[Any], Any], stands_for: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Nested values with ``number`` of each; symbolic tensors become plain ones, which are noted."""
    if isinstance(value, torch.Tensor):
        if not value._has_symbolic_sizes_strides:
            return value
        plain = torch.empty_strided([*map(number, value.size())], [*map(number, value.stride())], dtype=value.dtype, device=META)
        stands_for[id(plain)] = plain, value
        return plain
    kind = type(value)
    if kind in (list, tuple):
        return kind(_in_numbers(v, number, stands_for) for v in value)
    if kind is dict:
        return {k: _in_numbers(v, number, stands_for) for k, v in value.items()}
    return number(value)


@functools.cache
def python_kernel(func: Any, symbolic: bool) -> Callable[..., Any] | None:
    """What an operator is made of, in terms of others: for any sizes where it is composite, and torch's meta kernel or decomposition in
    Python for symbolic ones."""
    if func._can_decompose() and not _has_meta_kernel(func):
        return func.decompose  # type: ignore[no-any-return]
    if not symbolic:
        return None
    from torch._decomp import decomposition_table, meta_table

    return meta_table.get(func) or decomposition_table.get(func)


def _has_meta_kernel(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "Meta")
