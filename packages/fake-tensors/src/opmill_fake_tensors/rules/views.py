"""Views of tensors with symbolic sizes. Of others torch's own meta kernels make views, in C++; those want integers.

A row gives a meta tensor that shares the storage of its argument."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from ..strides import extent
from ..symbols import index_of, sym_int
from ..symbols.asking import demanded, known_from_data, surely
from ..table import Rules, alike
from ..views import expanded, inferred, strides_of_view
from .retyped import view_as_type

RULES = Rules()
SYMBOLIC = Rules()
Tensor = torch.Tensor


def _view(x: Tensor, sizes: Sequence[int], strides: Sequence[int], offset: Any = None) -> Tensor:
    return torch.as_strided(x, tuple(sizes), tuple(strides), x.storage_offset() if offset is None else offset)


def _dim(dim: int, rank: int) -> int:
    bound = max(rank, 1)
    if not -bound <= dim < bound:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {dim})")
    return dim % bound


@SYMBOLIC.row("view")
def _view_as(overload: str, x: Tensor, sizes: Any) -> Any:
    if overload != "":
        return view_as_type(x, sizes)
    wanted = inferred(sizes, x.numel())
    strides = strides_of_view(x.size(), x.stride(), wanted)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous "
            "subspaces). "
            "Use .reshape(...) instead."
        )
    return _view(x, wanted, strides)


@SYMBOLIC.row("_reshape_alias")
def _reshape_alias(overload: str, x: Tensor, sizes: Sequence[int], strides: Sequence[int]) -> Any:
    return _view(x, sizes, strides)


@SYMBOLIC.row("as_strided")
def _as_strided(overload: str, x: Tensor, sizes: Sequence[int], strides: Sequence[int], offset: Any = None) -> Any:
    if not any(known_from_data(n) for n in (*sizes, *strides)) and all(n != 0 for n in sizes):
        at = x.storage_offset() if offset is None else offset
        if at + extent(sizes, strides) > x.untyped_storage().nbytes() // x.element_size():
            raise RuntimeError(
                f"setStorage: sizes {list(sizes)}, strides {list(strides)}, storage offset {at} are out of bounds for the storage"
            )
    return _view(x, sizes, strides, offset)


def _in_place(name: str) -> None:
    """``x.t_()`` is ``x`` with the sizes and strides of ``x.t()``."""
    rule = SYMBOLIC[f"aten::{name}"]

    def in_place(base_name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        view = rule(name, "int" if name == "transpose" else overload, args, kwargs)
        return view if view is NotImplemented else args[0].as_strided_(view.size(), view.stride(), view.storage_offset())

    SYMBOLIC[f"aten::{name}_"] = in_place


@SYMBOLIC.row("detach alias lift_fresh")
def _alias(overload: str, x: Tensor) -> Any:
    return _view(x, x.size(), x.stride())


@SYMBOLIC.row("expand")
def _expand(overload: str, x: Tensor, sizes: Sequence[int], *, implicit: bool = False) -> Any:
    lead = len(sizes) - x.dim()
    if lead < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(sizes)}) must be at least the number of dimensions in the tensor ({x.dim()})"
        )
    out = list(sizes)
    for d, n in enumerate(sizes):
        if d < lead:
            if type(n) is int and n == -1:
                raise RuntimeError("expand: -1 is not allowed in a leading, non-existing dimension")
            continue
        own = x.size(d - lead)
        if (type(n) is int and n == -1) or n is own or surely(own == n):
            out[d] = own
        elif not surely(own == 1) and own != 1:
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({own}) at non-singleton dimension {d}."
            )
    return _view(x, out, expanded(x.size(), x.stride(), out))


@SYMBOLIC.row("permute")
def _permute(overload: str, x: Tensor, dims: Sequence[int]) -> Any:
    order = [_dim(d, x.dim()) for d in dims]
    if sorted(order) != list(range(x.dim())):
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering {list(dims)}"
        )
    return _view(x, [x.size(d) for d in order], [x.stride(d) for d in order])


@SYMBOLIC.row("transpose")
def _transpose(overload: str, x: Tensor, a: Any, b: Any) -> Any:
    if overload != "int":
        return NotImplemented
    order = list(range(x.dim()))
    if order:
        a, b = _dim(a, x.dim()), _dim(b, x.dim())
        order[a], order[b] = order[b], order[a]
    return _permute("", x, order)


@SYMBOLIC.row("t")
def _t(overload: str, x: Tensor) -> Any:
    if x.dim() > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.dim()}D")
    return _permute("", x, list(range(x.dim()))[::-1])


@SYMBOLIC.row("unsqueeze")
def _unsqueeze(overload: str, x: Tensor, dim: int) -> Any:
    at = _dim(dim, x.dim() + 1)
    sizes, strides = list(x.size()), list(x.stride())
    strides.insert(at, sizes[at] * strides[at] if at < len(sizes) else 1)
    sizes.insert(at, 1)
    return _view(x, sizes, strides)


@SYMBOLIC.row("squeeze")
def _squeeze(overload: str, x: Tensor, dim: Any = None) -> Any:
    dims = range(x.dim()) if dim is None else [_dim(d, x.dim()) for d in (dim if isinstance(dim, (list, tuple)) else [dim])]
    kept = [d for d in range(x.dim()) if d not in dims or x.size(d) != 1]  # how many dimensions are left must be known
    return _view(x, [x.size(d) for d in kept], [x.stride(d) for d in kept])


@SYMBOLIC.row("select")
def _select(overload: str, x: Tensor, dim: int, at: int) -> Any:
    if overload != "int":
        return NotImplemented
    if not x.dim():
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = _dim(dim, x.dim())
    size = x.size(dim)
    if not (demanded(at < size) and demanded(at >= -size)):
        raise IndexError(f"select(): index {at} out of range for tensor of size {list(x.size())} at dimension {dim}")
    if not known_from_data(at):
        at = at + size if at < 0 else at
    elif not surely(at >= 0):
        at = _derived(at, "{0} + ({0} < 0)*({1})", size)
    kept = [d for d in range(x.dim()) if d != dim]
    return _view(x, [x.size(d) for d in kept], [x.stride(d) for d in kept], x.storage_offset() + at * x.stride(dim))


def _derived(unknown: Any, text: str, *sizes: Any) -> Any:
    """The size that an expression of others gives, the first of which only data tell; at most the last one."""
    environment = unknown.node.sizes
    symbol = environment.derived(text.format(*(f"({index_of(n)})" for n in (unknown, *sizes))), at_most=index_of(sizes[-1]))
    return sym_int(environment, symbol)


def _clamped(at: Any, size: int, default: Any) -> Any:
    """A bound of a slice inside of ``[0, size]``."""
    if at is None:
        return default
    if type(at) is int and at == sys.maxsize:
        return size
    if known_from_data(at) or known_from_data(size):
        if surely(at >= 0):
            return at if surely(at <= size) else size if surely(at >= size) else _derived_of(at, size, "min({0}, {1})")
        return _derived_of(at, size, "min(max({0} + ({0} < 0)*{1}, 0), {1})")
    if at < 0:
        at = at + size
        return 0 if at < 0 else at
    return at if at is size or at <= size else size


def _derived_of(at: Any, size: Any, text: str) -> Any:
    return (
        _derived(at, text, size)
        if known_from_data(at)
        else _derived(size, text.replace("{0}", "{2}").replace("{1}", "{0}").replace("{2}", "{1}"), at, size)
    )


def _length(start: Any, end: Any, step: Any) -> Any:
    """Of a slice whose bounds lie inside."""
    if not known_from_data(start) and not known_from_data(end):
        return 0 if end < start else end - start if type(step) is int and step == 1 else (end - start + step - 1) // step
    if not surely(end >= start):
        pair = (start, end) if known_from_data(start) else (end, start)
        texts = ("max({1} - {0}, 0)", "max({0} - {1}, 0)")
        length = _derived(pair[0], texts[pair[0] is end], pair[1], end)
    else:
        length = end - start
    return length if type(step) is int and step == 1 else (length + step - 1) // step


def _rest(size: Any, start: Any, end: Any) -> Any:
    """How many there are without the first, or without the last, of so many as only data tell: the same size for both. None elsewhere."""
    whole = end is None or end is size or (type(end) is int and end == sys.maxsize)
    if type(start) is int and start > 0 and whole:
        less = start
    elif (start is None or (type(start) is int and start == 0)) and type(end) is int and end < 0:
        less = -end
    else:
        return None
    return size - less if surely(size >= less) else _derived(size, f"max({{0}} - {less}, 0)", size)


@SYMBOLIC.row("slice")
def _slice(overload: str, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    if overload != "Tensor":
        return NotImplemented
    if not x.dim():
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    dim = _dim(dim, x.dim())
    size = x.size(dim)
    rest = _rest(size, start, end) if step == 1 and known_from_data(size) else None
    start, end = _clamped(start, size, 0), _clamped(end, size, size)
    sizes, strides = list(x.size()), list(x.stride())
    sizes[dim] = _length(start, end, step) if rest is None else rest
    strides[dim] = strides[dim] * step
    return _view(x, sizes, strides, x.storage_offset() + start * x.stride(dim))


@SYMBOLIC.row("split")
def _split(overload: str, x: Tensor, size: Any, dim: int = 0) -> Any:
    if overload == "sizes":
        return _split_sizes("", x, size, dim)
    whole = x.size(_dim(dim, x.dim()))
    if size < 0 or (size == 0 and whole != 0):
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    count = max(int((whole + size - 1) // size), 1) if size != 0 else 1
    return [_slice("Tensor", x, dim, k * size, (k + 1) * size if k + 1 < count else whole) for k in range(count)]


@SYMBOLIC.row("split_with_sizes")
def _split_sizes(overload: str, x: Tensor, sizes: Sequence[int], dim: int = 0) -> Any:
    dim = _dim(dim, x.dim())
    whole = x.size(dim)
    if not demanded(sum(sizes) == whole) or not all(demanded(n >= 0) for n in sizes):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {whole} (input tensor's size at dimension {dim}), but got "
            f"split_sizes={list(sizes)}"
        )
    out, at = [], x.storage_offset()
    for n in sizes:
        out.append(_view(x, [*x.size()[:dim], n, *x.size()[dim + 1 :]], x.stride(), at))
        at = at + n * x.stride(dim)
    return out


@SYMBOLIC.row("unbind")
def _unbind(overload: str, x: Tensor, dim: int = 0) -> Any:
    return [_select("int", x, dim, k) for k in range(int(x.size(_dim(dim, x.dim()))))]


@SYMBOLIC.row("diagonal")
def _diagonal(overload: str, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    a, b = _dim(dim1, x.dim()), _dim(dim2, x.dim())
    if overload != "" or a == b:
        return NotImplemented
    rows, columns = x.size(a), x.size(b)
    length = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    length = max(length, 0)
    at = x.storage_offset()
    if length != 0:
        at = at + (offset * x.stride(b) if offset >= 0 else -offset * x.stride(a))
    kept = [d for d in range(x.dim()) if d not in (a, b)]
    return _view(x, [*(x.size(d) for d in kept), length], [*(x.stride(d) for d in kept), x.stride(a) + x.stride(b)], at)


@SYMBOLIC.row("unfold")
def _unfold(overload: str, x: Tensor, dim: int, size: int, step: int) -> Any:
    dim = _dim(dim, x.dim())
    if not x.dim() or step <= 0 or size < 0 or size > x.size(dim):
        return NotImplemented
    sizes, strides = list(x.size()), list(x.stride())
    inner = strides[dim]
    sizes[dim], strides[dim] = (sizes[dim] - size) // step + 1, inner * step
    return _view(x, [*sizes, size], [*strides, inner])


@RULES.row("slice_scatter")  # whose decomposition in torch 2.11 keeps the strides of what is expanded
@SYMBOLIC.row("slice_scatter")
def _slice_scatter(overload: str, x: Tensor, part: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return _scattered(x, part, _slice("Tensor", x, dim, start, end, step))


@SYMBOLIC.row("select_scatter")
def _select_scatter(overload: str, x: Tensor, part: Tensor, dim: int, at: int) -> Any:
    return _scattered(x, part, _select("int", x, dim, at))


@SYMBOLIC.row("diagonal_scatter")
def _diagonal_scatter(overload: str, x: Tensor, part: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    view = _diagonal("", x, offset, dim1, dim2)
    return view if view is NotImplemented else _scattered(x, part, view)


def _scattered(x: Tensor, part: Tensor, view: Tensor) -> Any:
    if part.dim() != view.dim() or not all(a is b or demanded(a == b) for a, b in zip(part.size(), view.size(), strict=True)):
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(part.size())}, slice size = {list(view.size())}"
        )
    return alike(x)


@SYMBOLIC.row("_has_same_storage_numel")
def _has_same_storage_numel(overload: str, x: Tensor, other: Tensor) -> bool:
    """What forward derivatives ask before a tensor is given its tangent."""
    return surely(x.untyped_storage().nbytes() * other.itemsize == other.untyped_storage().nbytes() * x.itemsize)


for _name in ("as_strided", "t", "transpose", "squeeze", "unsqueeze"):
    _in_place(_name)
