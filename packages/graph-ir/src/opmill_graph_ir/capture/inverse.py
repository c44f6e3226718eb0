"""Inverses of views: given the outer value and the new content of a view of it, the operator that gives the new outer value.

Each row: (outer meta, outer value, new value, further arguments of the view, its kwargs, which result) -> (func, args, kwargs), several
of these where it takes more than one operator, or None where one element of the outer value is many of the view."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from msgspec import Struct

from .graph import Meta, Value

aten = torch.ops.aten


def shares_elements(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether two positions may be one element in memory: then a write to one shows at the other."""
    span = 1
    for stride, size in sorted((st, sz) for st, sz in zip(strides, sizes, strict=True) if sz != 1):
        if stride < span:
            return all(n != 0 for n in sizes)
        span += stride * (size - 1)
    return False


_Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
_MOST_POSITIONS = 64


class Earlier(Struct, frozen=True):
    """What the call of this number has given, among those that an inverse consists of."""

    number: int


def _reshape(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.reshape.default, (new, list(outer.sizes)), {}


def _permute(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    dims = [d % len(outer.sizes) for d in rest[0]]
    return aten.permute.default, (new, [dims.index(d) for d in range(len(dims))]), {}


def _transpose(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.transpose.int, (new, *rest), {}


def _t(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.t.default, (new,), {}


def _same(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.alias.default, (new,), {}


def _slice(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.slice_scatter.default, (base, new, *rest), kwargs


def _select(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.select_scatter.default, (base, new, *rest), kwargs


def _split(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    dim = rest[1] if len(rest) > 1 else kwargs.get("dim", 0)
    size = rest[0]
    parts = size if isinstance(size, (list, tuple)) else [size] * ((item or 0) + 1)
    start = sum(parts[: item or 0])
    return aten.slice_scatter.default, (base, new, dim, start, min(start + parts[item or 0], outer.sizes[dim])), {}


def _unbind(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.select_scatter.default, (base, new, rest[0] if rest else 0, item), {}


def _as_strided(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call | None:
    """Of a vector of all elements of the memory, see :mod:`.memory_views`."""
    if shares_elements(rest[0], rest[1]):
        return None
    return aten.as_strided_scatter.default, (base, new, *rest), kwargs


def _diagonal(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.diagonal_scatter.default, (base, new, *rest), kwargs


def _expand(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call | None:
    added = len(rest[0]) - len(outer.sizes)
    grown = [m not in (-1, n) for n, m in zip(outer.sizes, rest[0][added:], strict=True)]
    return None if math.prod(rest[0][:added]) != 1 or any(grown) else _reshape(outer, base, new, rest, kwargs, item)


def _unfold(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> list[_Call] | None:
    """Windows that lie apart, by position in them: what is below may have other strides than the memory that the program sees."""
    dim, size, step = rest
    if not outer.sizes or size > step or (size > _MOST_POSITIONS and size != step):
        return None
    dim = dim % len(outer.sizes)
    count = (outer.sizes[dim] - size) // step + 1
    if size != step:
        calls: list[_Call] = []
        for k in range(size):
            below: Value | Earlier = base if k == 0 else Earlier(2 * k - 1)
            calls.append((aten.select.int, (new, len(outer.sizes), k), {}))
            calls.append((aten.slice_scatter.default, (below, Earlier(2 * k), dim, k, k + (count - 1) * step + 1, step), {}))
        return calls
    order = list(range(len(outer.sizes)))
    order.insert(dim + 1, len(outer.sizes))
    sizes = list(outer.sizes)
    sizes[dim] = count * size
    return [
        (aten.permute.default, (new, order), {}),
        (aten.reshape.default, (Earlier(0), sizes), {}),
        (aten.slice_scatter.default, (base, Earlier(1), dim, 0, count * size), {}),
    ]


def _view_as_real(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.view_as_complex.default, (new,), {}


def _view_as_complex(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.view_as_real.default, (new,), {}


def _view_dtype(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.view.dtype, (new, getattr(torch, outer.dtype)), {}


def _conj(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten._conj_physical.default, (new,), {}


def _neg_view(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.neg.default, (new,), {}


def inverted(found: _Call | list[_Call], run: Callable[..., str]) -> str:
    """The name of the new outer value. ``run(func, args, kwargs)`` records a call and names its result."""
    made: list[Value] = []
    for func, args, kwargs in found if isinstance(found, list) else [found]:
        made.append(Value(run(func, tuple(made[arg.number] if isinstance(arg, Earlier) else arg for arg in args), kwargs)))
    return made[-1].name


INVERSES = {
    **dict.fromkeys(
        "aten::view aten::_unsafe_view aten::unsqueeze aten::squeeze aten::squeeze.dim aten::squeeze.dims aten::_reshape_alias".split(),
        _reshape,
    ),
    **dict.fromkeys("aten::alias aten::detach aten::lift_fresh aten::resolve_conj".split(), _same),
    "aten::permute": _permute,
    "aten::transpose.int": _transpose,
    "aten::t": _t,
    "aten::slice.Tensor": _slice,
    "aten::select.int": _select,
    "aten::split.Tensor": _split,
    "aten::split_with_sizes": _split,
    "aten::unbind.int": _unbind,
    "aten::as_strided": _as_strided,
    "aten::diagonal": _diagonal,
    "aten::expand": _expand,
    "aten::unfold": _unfold,
    "aten::view_as_real": _view_as_real,
    "aten::view_as_complex": _view_as_complex,
    "aten::view.dtype": _view_dtype,
    "aten::_conj": _conj,
    "aten::_neg_view": _neg_view,
}
