"""Inverses of views: given the outer value and the new content of a view of it, the operator that gives the new outer value.

Each row: (outer meta, outer value, new value, further arguments of the view, its kwargs, which result) -> (func, args, kwargs)."""

from __future__ import annotations

from typing import Any

import torch

from .graph import Meta, Value

aten = torch.ops.aten
_Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


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


def _as_strided(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.as_strided_scatter.default, (base, new, *rest), kwargs


def _diagonal(outer: Meta, base: Value, new: Value, rest: tuple[Any, ...], kwargs: dict[str, Any], item: int | None) -> _Call:
    return aten.diagonal_scatter.default, (base, new, *rest), kwargs


INVERSES = {
    **dict.fromkeys("aten::view aten::_unsafe_view aten::unsqueeze aten::squeeze aten::squeeze.dim aten::squeeze.dims aten::_reshape_alias".split(), _reshape),
    **dict.fromkeys("aten::alias aten::detach aten::lift_fresh".split(), _same),
    "aten::permute": _permute, "aten::transpose.int": _transpose, "aten::t": _t,
    "aten::slice.Tensor": _slice, "aten::select.int": _select, "aten::split.Tensor": _split, "aten::split_with_sizes": _split,
    "aten::unbind.int": _unbind, "aten::as_strided": _as_strided, "aten::diagonal": _diagonal,
}  # fmt: skip
