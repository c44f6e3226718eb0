"""Gathering, putting together, and tensors made from nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..strides import broadcast, contiguous, like, pointwise, same
from ..symbols.asking import demanded, known_from_data, surely, typically
from ..symbols.layouts import in_rows
from ..table import Rules, alike, channels_last, dense, image, strided
from ..views import expanded, inferred, strides_of_view

RULES = Rules()
Tensor = torch.Tensor
_INTEGERS = (torch.int64, torch.int32)


@RULES.row("embedding")
def _embedding(overload: str, weight: Tensor, ids: Tensor, *_: Any, **__: Any) -> Any:
    if overload != "" or weight.dim() != 2 or ids.dtype not in _INTEGERS:
        return NotImplemented
    return dense((*ids.size(), weight.size(1)), weight.dtype)


@RULES.row("index_select")
def _index_select(overload: str, x: Tensor, dim: int, ids: Tensor) -> Any:
    if overload != "" or not -x.dim() <= dim < x.dim() or ids.dim() != 1 or ids.dtype not in _INTEGERS:
        return NotImplemented
    sizes = list(x.size())
    sizes[dim] = ids.size(0)
    return dense(sizes, x.dtype)


@RULES.row("gather")
def _gather(overload: str, x: Tensor, dim: int, ids: Tensor, *, sparse_grad: bool = False) -> Any:
    if overload != "" or x.dim() != ids.dim() or not x.dim() or not -x.dim() <= dim < x.dim() or ids.dtype is not torch.int64:
        return NotImplemented
    if not all(i is n or demanded(i <= n) for k, (i, n) in enumerate(zip(ids.size(), x.size(), strict=True)) if k != dim % x.dim()):
        return NotImplemented
    return dense(ids.size(), x.dtype)


@RULES.row("index")
def index_by(overload: str, x: Tensor, ids: Sequence[Tensor | None]) -> Any:
    """``x[ids]``, None standing for a whole dimension: what the positions select comes first where others stand between them. Dense where
    all operands are, else laid out as the loop that gathers point by point lays out its result."""
    given = [k for k, i in enumerate(ids) if i is not None]
    tensors: list[Any] = [ids[k] for k in given]
    if (
        overload != "Tensor"
        or not given
        or any(t.dtype not in _INTEGERS for t in tensors)
        or len(ids) > x.dim()
        or any(surely(n == 0) for n in x.size())
    ):
        return NotImplemented
    block = broadcast([tuple(t.size()) for t in tensors])
    first = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    rest = [d for d in range(x.dim()) if d not in given]
    before, after = rest[:first], rest[first:]
    shape = (*(x.size(d) for d in before), *block, *(x.size(d) for d in after))
    if all(typically(step == row) for t in (x, *tensors) for step, row in zip(t.stride(), contiguous(t.size()), strict=True)):
        return dense(shape, x.dtype)  # dimensions of one count: their strides order what is computed, too
    # what is computed point by point: the source stands still along the indices' dimensions, and these along the source's
    source = (*(x.stride(d) for d in before), *(0 for _ in block), *(x.stride(d) for d in after))
    operands = [(shape, source)]
    for t in tensors:
        sizes = (*(1 for _ in before), *block, *(1 for _ in after))
        operands.append((sizes, strides_of_view(block, expanded(t.size(), t.stride(), block), sizes) or sizes))
    return strided(shape, pointwise(shape, operands), x.dtype)


SYMBOLIC = Rules()


@SYMBOLIC.row("index_put _unsafe_index_put")
def _index_put(overload: str, x: Tensor, ids: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    """The values must broadcast to what the indices select."""
    given = [k for k, i in enumerate(ids) if i is not None]
    tensors: list[Any] = [ids[k] for k in given]
    if not given or len(ids) > x.dim() or any(t.dtype not in _INTEGERS for t in tensors):
        return NotImplemented
    block = broadcast([tuple(t.size()) for t in tensors])
    rest = [n for k, n in enumerate(x.size()) if k not in given]
    lead = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    selected = (*rest[:lead], *block, *rest[lead:])
    if values.dtype != x.dtype or not same(broadcast([selected, values.size()]), selected):
        return NotImplemented
    return alike(x)


@SYMBOLIC.row("scatter scatter_add")
def _scatter(overload: str, x: Tensor, dim: int, ids: Tensor, src: Any, **more: Any) -> Any:
    """Of tensors with sizes that only data tell; of others torch's own kernel knows more."""
    tensors = [t for t in (x, ids, src) if isinstance(t, Tensor)]
    if not any(known_from_data(n) for t in tensors for n in t.size()) or more or ids.dtype is not torch.int64 or not x.dim():
        return NotImplemented
    if any(t.dim() != x.dim() for t in tensors) or not -x.dim() <= dim < x.dim() or (isinstance(src, Tensor) and src.dtype != x.dtype):
        return NotImplemented
    fits = all(i is n or demanded(i <= n) for d, (i, n) in enumerate(zip(ids.size(), x.size(), strict=True)) if d != dim % x.dim())
    if isinstance(src, Tensor):
        fits = fits and all(i is n or demanded(i <= n) for i, n in zip(ids.size(), src.size(), strict=True))
    return dense(x.size(), x.dtype) if fits else NotImplemented


@SYMBOLIC.row("scatter_reduce")
def _scatter_reduce(overload: str, x: Tensor, dim: int, ids: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    return _scatter(overload, x, dim, ids, src) if overload == "two" else NotImplemented


@SYMBOLIC.row("index_add index_copy")
def _index_add(overload: str, x: Tensor, dim: int, ids: Tensor, src: Tensor, **more: Any) -> Any:
    if overload != "" or ids.dim() != 1 or ids.dtype not in _INTEGERS or src.dim() != x.dim() or src.dtype != x.dtype or not x.dim():
        return NotImplemented
    wanted = [*x.size()]
    wanted[dim] = ids.size(0)
    return dense(x.size(), x.dtype) if all(a is b or demanded(a == b) for a, b in zip(src.size(), wanted, strict=True)) else NotImplemented


@SYMBOLIC.row("put")
def _put(overload: str, x: Tensor, ids: Tensor, src: Tensor, accumulate: bool = False) -> Any:
    """As many elements are put as there are positions, which count the elements of ``x`` in the order of rows."""
    fits = ids.dtype is torch.int64 and src.dtype == x.dtype and not any(surely(n == 0) for n in x.size())
    return alike(x) if fits and demanded(ids.numel() == src.numel()) else NotImplemented


@SYMBOLIC.row("nll_loss_backward")
def _nll_loss_backward(overload: str, grad: Tensor, x: Tensor, *_: Any) -> Any:
    return dense(x.size(), x.dtype) if overload == "" and x.dim() in (1, 2) else NotImplemented


@SYMBOLIC.row("roll")
def _roll(overload: str, x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Rows, unless it is an image with channels last. How far does not matter, and may be known from data alone."""
    if not x.dim() or not all(-x.dim() <= d < x.dim() for d in dims) or len(shifts) != (len(dims) or 1):
        return NotImplemented
    rows = all(typically(step == row) for step, row in zip(x.stride(), contiguous(x.size()), strict=True))
    return dense(x.size(), x.dtype) if rows or x.dim() not in (4, 5) else NotImplemented


@SYMBOLIC.row("constant_pad_nd")
def _pad(overload: str, x: Tensor, pad: Sequence[int], value: Any = 0) -> Any:
    """By numbers that only data tell."""
    if not any(known_from_data(n) for n in (*pad, *x.size())) or len(pad) % 2 or len(pad) > 2 * x.dim():
        return NotImplemented
    sizes = list(x.size())
    for k in range(len(pad) // 2):
        sizes[-1 - k] = sizes[-1 - k] + pad[2 * k] + pad[2 * k + 1]
    return image(sizes, x.dtype, channels_last(x)) if all(demanded(n >= 0) for n in sizes) else NotImplemented


def _in_place(row: Callable[..., Any]) -> Callable[..., Any]:
    """The row of an operator that writes the result of another into its first argument."""

    def write(overload: str, x: Tensor, *args: Any, **more: Any) -> Any:
        return NotImplemented if row(overload, x, *args, **more) is NotImplemented else x

    return write


SYMBOLIC.row("index_put_")(_in_place(_index_put))
SYMBOLIC.row("scatter_ scatter_add_")(_in_place(_scatter))
SYMBOLIC.row("put_")(_in_place(_put))
SYMBOLIC.row("scatter_reduce_")(_in_place(_scatter_reduce))
SYMBOLIC.row("index_add_ index_copy_")(_in_place(_index_add))


def _one_type(tensors: Sequence[Tensor]) -> torch.dtype | None:
    dtype = tensors[0].dtype
    return dtype if all(t.dtype == dtype for t in tensors) else None


@RULES.row("cat")
def _cat(overload: str, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    if overload != "" or not tensors or (dtype := _one_type(tensors)) is None:
        return NotImplemented
    first = tensors[0].size()
    rank = len(first)
    if not rank or not -rank <= dim < rank:
        return NotImplemented
    dim %= rank
    rest = (*first[:dim], *first[dim + 1 :])
    for t in tensors:
        n = t.size()
        if (
            len(n) != rank
            or (rank == 1 and surely(n[0] == 0))
            or not all(a is b or demanded(a == b) for a, b in zip((*n[:dim], *n[dim + 1 :]), rest, strict=True))
        ):
            return NotImplemented
    sizes = (*first[:dim], sum(t.size(dim) for t in tensors), *first[dim + 1 :])
    if any(channels_last(t) for t in tensors):
        return NotImplemented
    return dense(sizes, dtype)


@RULES.row("stack")
def _stack(overload: str, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    if overload != "" or not tensors or (dtype := _one_type(tensors)) is None:
        return NotImplemented
    first = tuple(tensors[0].size())
    if not all(a is b or demanded(a == b) for t in tensors for a, b in zip(t.size(), first, strict=True)) or not -len(
        first
    ) - 1 <= dim <= len(first):
        return NotImplemented
    dim %= len(first) + 1
    sizes = (*first[:dim], len(tensors), *first[dim:])
    return dense(sizes, dtype) if all(in_rows(t) for t in tensors) else NotImplemented


@RULES.row("tril triu")
def _tri(overload: str, x: Tensor, diagonal: int = 0) -> Any:
    return dense(x.size(), x.dtype) if overload == "" and x.dim() >= 2 else NotImplemented


@RULES.row("repeat")
def _repeat(overload: str, x: Tensor, repeats: Sequence[int]) -> Any:
    lead = len(repeats) - x.dim()
    if lead < 0 or any(r < 0 for r in repeats):
        return NotImplemented
    return dense([r * n for r, n in zip(repeats, (*(1 for _ in range(lead)), *x.size()), strict=True)], x.dtype)


@RULES.row("flip")
def _flip(overload: str, x: Tensor, dims: Sequence[int]) -> Any:
    bound = max(x.dim(), 1)
    ok = all(-bound <= d < bound for d in dims) and len({d % bound for d in dims}) == len(dims)
    return alike(x) if overload == "" and ok else NotImplemented


@RULES.row("masked_fill")
def _masked_fill(overload: str, x: Tensor, mask: Tensor, value: Any) -> Any:
    if mask.dtype is not torch.bool or type(value) is complex or (isinstance(value, Tensor) and value.dim()):
        return NotImplemented
    if not x.is_floating_point():
        return NotImplemented  # some values do not fit
    return dense(broadcast([tuple(x.size()), tuple(mask.size())]), x.dtype)


@RULES.row("_unsafe_view")
def _unsafe_view(overload: str, x: Tensor, sizes: Sequence[int]) -> Any:
    if overload != "":
        return NotImplemented
    wanted = inferred(sizes, x.numel())
    strides = strides_of_view(x.size(), x.stride(), wanted)
    return NotImplemented if strides is None else strided(wanted, strides, x.dtype)


# ---- from nothing --------------------------------------------------------------------------------------------------


def _made(sizes: Sequence[int], dtype: torch.dtype | None, layout: Any, memory_format: Any) -> Any:
    if (
        layout not in (None, torch.strided)
        or memory_format not in (None, torch.contiguous_format)
        or not all(demanded(n >= 0) for n in sizes)
    ):
        return NotImplemented
    return dense(sizes, dtype or torch.get_default_dtype())


@SYMBOLIC.row("_efficientzerotensor")
@RULES.row("zeros ones empty rand randn")
def _zeros(
    overload: str,
    sizes: Sequence[int],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    memory_format: Any = None,
    generator: Any = None,
) -> Any:
    return _made(sizes, dtype, layout, memory_format) if overload in ("", "memory_format", "generator") else NotImplemented


@RULES.row("empty_strided new_empty_strided")
def _empty_strided(overload: str, *args: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    *like_, sizes, strides = args
    dtype = dtype or (like_[0].dtype if like_ else torch.get_default_dtype())
    fits = layout in (None, torch.strided) and len(sizes) == len(strides) and all(surely(n >= 0) for n in (*sizes, *strides))
    return strided(sizes, strides, dtype) if fits else NotImplemented


@RULES.row("full")
def _full(overload: str, sizes: Sequence[int], value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None) -> Any:
    if dtype is None:
        dtype = {bool: torch.bool, int: torch.int64, torch.SymInt: torch.int64, float: torch.get_default_dtype()}.get(type(value))
    return _made(sizes, dtype, layout, None) if dtype is not None and overload == "" else NotImplemented


@RULES.row("scalar_tensor")
def _scalar(overload: str, value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None) -> Any:
    return _made((), dtype, layout, None) if overload == "" and type(value) is not complex else NotImplemented


@RULES.row("zeros_like ones_like empty_like")
def _zeros_like(overload: str, x: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, memory_format: Any = None) -> Any:
    if overload != "" or layout not in (None, torch.strided) or memory_format not in (None, torch.preserve_format, torch.contiguous_format):
        return NotImplemented
    keep = memory_format is not torch.contiguous_format
    return strided(x.size(), like(x.size(), x.stride()) if keep else contiguous(x.size()), dtype or x.dtype)


@RULES.row("full_like")
def _full_like(overload: str, x: Tensor, value: Any, **kwargs: Any) -> Any:
    return _zeros_like(overload, x, **kwargs)


@RULES.row("fill")
def _fill(overload: str, x: Tensor, value: Any) -> Any:
    return alike(x) if overload == "Scalar" and type(value) is not complex else NotImplemented


@RULES.row("new_zeros new_ones new_empty")
def _new(overload: str, x: Tensor, sizes: Sequence[int], *, dtype: Any = None, layout: Any = None, device: Any = None) -> Any:
    return _made(sizes, dtype or x.dtype, layout, None) if overload == "" else NotImplemented


@RULES.row("new_full")
def _new_full(overload: str, x: Tensor, sizes: Sequence[int], value: Any, **kwargs: Any) -> Any:
    return _new(overload, x, sizes, **kwargs) if type(value) is not complex else NotImplemented


@RULES.row("arange")
def _arange(overload: str, *bounds: Any, dtype: Any = None, layout: Any = None, device: Any = None, **rest: Any) -> Any:
    if any(type(b) not in (int, torch.SymInt) for b in bounds) or rest or not bounds or layout not in (None, torch.strided):
        return NotImplemented
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if step == 0 or not demanded((end - start) * step >= 0) or dtype is torch.bool:
        return NotImplemented
    return dense(((end - start + step - (1 if step > 0 else -1)) // step,), dtype or torch.int64)
