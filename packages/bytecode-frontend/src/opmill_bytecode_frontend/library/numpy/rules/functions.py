"""Functions and methods. A rule has the parameters of NumPy's function that it knows, and is given tensors for arrays; ``as_dtype`` is the
dtype of NumPy's result. A parameter that it lacks, given, is a reason to leave the call to NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

Rule = TypeVar("Rule", bound=Callable[..., object])
Axes = int | tuple[int, ...] | list[int] | None
"""One dimension, several, or all of them."""
Sizes = int | tuple[int, ...] | list[int]
Scalar = bool | int | float | complex
Told = Any
"""Numbers of the program, or a tensor of them, in any of the forms that NumPy takes."""
FUNCTIONS: dict[str, Any] = {}
#: Functions whose arrays are asked about as unit matrices: NumPy refuses singular ones.
UNITS: set[str] = set()
#: Methods of arrays that are the functions of the same name.
METHODS = frozenset(
    "sum prod mean std var min max argmin argmax any all cumsum cumprod clip round ravel reshape transpose squeeze swapaxes take repeat "
    "dot "
    "diagonal trace copy flatten astype ptp conj conjugate item tolist argsort searchsorted view".split()
)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """The decorated function is the rule of these functions of NumPy's."""

    def add(function: Rule) -> Rule:
        for name in names:
            FUNCTIONS[name] = function
        return function

    return add


def axes_of(a: torch.Tensor, axis: Axes) -> list[int]:
    """The dimensions that NumPy's ``axis`` names, counted from the front."""
    if axis is None:
        return list(range(a.dim()))
    return [each % a.dim() for each in axis] if isinstance(axis, (tuple, list)) else [axis % a.dim()] if a.dim() else []


# ---- reductions ----------------------------------------------------------------------------------------------------------


@rule("sum")
def sum_(a: torch.Tensor, axis: Axes = None, dtype: object = None, keepdims: bool = False, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The sum along axes, added in NumPy's type for it."""
    return torch.sum(a.to(as_dtype), dim=axes_of(a, axis), keepdim=keepdims) if a.dim() else a.to(as_dtype)


@rule("prod")
def prod(a: torch.Tensor, axis: Axes = None, dtype: object = None, keepdims: bool = False, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The product along axes, one axis after the other."""
    a = a.to(as_dtype)
    for each in sorted(axes_of(a, axis), reverse=True):
        a = torch.prod(a, dim=each, keepdim=keepdims)
    return a


@rule("mean")
def mean(a: torch.Tensor, axis: Axes = None, dtype: object = None, keepdims: bool = False, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The mean along axes."""
    return torch.mean(a.to(as_dtype), dim=axes_of(a, axis), keepdim=keepdims) if a.dim() else a.to(as_dtype)


@rule("var")
def var(
    a: torch.Tensor, axis: Axes = None, dtype: object = None, ddof: int = 0, keepdims: bool = False, *, as_dtype: torch.dtype
) -> torch.Tensor:
    """The variance: the mean of squared distances from the mean, with ``ddof`` fewer items counted."""
    axes = axes_of(a, axis)
    count = 1
    for each in axes:
        count *= a.shape[each]
    a = a.to(as_dtype)
    middle = torch.mean(a, dim=axes, keepdim=True)
    return torch.sum(torch.square(a - middle), dim=axes, keepdim=keepdims) / max(count - ddof, 0)


@rule("std")
def std(
    a: torch.Tensor, axis: Axes = None, dtype: object = None, ddof: int = 0, keepdims: bool = False, *, as_dtype: torch.dtype
) -> torch.Tensor:
    """The standard deviation, which is the root of the variance."""
    return torch.sqrt(var(a, axis, dtype, ddof, keepdims, as_dtype=as_dtype))


@rule("max", "amax")
def max_(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    """The greatest item along axes; no number where there is one that is none."""
    return torch.amax(a, dim=axes_of(a, axis), keepdim=keepdims)


@rule("min", "amin")
def min_(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    """The smallest item along axes; no number where there is one that is none."""
    return torch.amin(a, dim=axes_of(a, axis), keepdim=keepdims)


@rule("ptp")
def ptp(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    """The greatest item less the smallest ("peak to peak")."""
    return max_(a, axis, keepdims) - min_(a, axis, keepdims)


@rule("argmax")
def argmax(a: torch.Tensor, axis: int | None = None, *, keepdims: bool = False) -> torch.Tensor:
    """The position of the greatest item, the first of equal ones."""
    return torch.argmax(a, dim=axis, keepdim=keepdims)


@rule("argmin")
def argmin(a: torch.Tensor, axis: int | None = None, *, keepdims: bool = False) -> torch.Tensor:
    """The position of the smallest item, the first of equal ones."""
    return torch.argmin(a, dim=axis, keepdim=keepdims)


@rule("any")
def any_(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    """Whether any item is true."""
    return torch.any(a.to(torch.bool), dim=axes_of(a, axis), keepdim=keepdims) if a.dim() else a.to(torch.bool)


@rule("all")
def all_(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    """Whether all items are true."""
    return torch.all(a.to(torch.bool), dim=axes_of(a, axis), keepdim=keepdims) if a.dim() else a.to(torch.bool)


@rule("cumsum")
def cumsum(a: torch.Tensor, axis: int | None = None, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The sums of all items so far; of the flat array without an axis."""
    return torch.cumsum(a.reshape(-1) if axis is None else a, dim=0 if axis is None else axis, dtype=as_dtype)


@rule("cumprod")
def cumprod(a: torch.Tensor, axis: int | None = None, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The products of all items so far; of the flat array without an axis."""
    return torch.cumprod(a.reshape(-1) if axis is None else a, dim=0 if axis is None else axis, dtype=as_dtype)


@rule("count_nonzero")
def count_nonzero(a: torch.Tensor, axis: Axes = None, *, keepdims: bool = False) -> torch.Tensor:
    """How many items are not zero."""
    return torch.sum(a.to(torch.bool), dim=axes_of(a, axis), keepdim=keepdims)


@rule("nansum")
def nansum(a: torch.Tensor, axis: Axes = None, dtype: object = None, keepdims: bool = False, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The sum of what is a number."""
    kept = torch.where(torch.isnan(a), torch.zeros_like(a), a)
    return sum_(kept, axis, dtype, keepdims, as_dtype=as_dtype)


@rule("nanmean")
def nanmean(a: torch.Tensor, axis: Axes = None, dtype: object = None, keepdims: bool = False, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The mean of what is a number."""
    count = torch.sum(torch.logical_not(torch.isnan(a)), dim=axes_of(a, axis), keepdim=keepdims)
    return nansum(a, axis, dtype, keepdims, as_dtype=as_dtype) / count


# ---- forms ---------------------------------------------------------------------------------------------------------------


@rule("reshape")
def reshape(a: torch.Tensor, shape: Sizes, order: str = "C") -> torch.Tensor:
    """The same items in another shape, a view where one can be had."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if order == "F":
        return transpose(torch.reshape(transpose(a), tuple(reversed(sizes))))
    if order != "C":
        raise NotImplementedError
    return torch.reshape(a, sizes)


@rule("ravel")
def ravel(a: torch.Tensor, order: str = "C") -> torch.Tensor:
    """The items in one row, a view where one can be had."""
    return reshape(a, -1, order)


@rule("flatten")
def flatten(a: torch.Tensor, order: str = "C") -> torch.Tensor:
    """A copy of the items in one row."""
    return ravel(a, order).clone()


@rule("transpose", "permute_dims")
def transpose(a: torch.Tensor, axes: Sequence[int] | None = None) -> torch.Tensor:
    """The dimensions in another order, turned round without ``axes``."""
    return torch.permute(a, tuple(reversed(range(a.dim()))) if axes is None else tuple(axes))


@rule("matrix_transpose")
def matrix_transpose(a: torch.Tensor) -> torch.Tensor:
    """The last two dimensions exchanged."""
    return torch.transpose(a, -1, -2)


@rule("swapaxes")
def swapaxes(a: torch.Tensor, axis1: int, axis2: int) -> torch.Tensor:
    """Two dimensions exchanged."""
    return torch.transpose(a, axis1, axis2)


@rule("moveaxis")
def moveaxis(a: torch.Tensor, source: Any, destination: Any) -> torch.Tensor:
    """Some dimensions at other places, the others in their order."""
    return torch.movedim(a, source, destination)


@rule("squeeze")
def squeeze(a: torch.Tensor, axis: Axes = None) -> torch.Tensor:
    """Without dimensions of size one."""
    return torch.squeeze(a) if axis is None else torch.squeeze(a, axis)


@rule("expand_dims")
def expand_dims(a: torch.Tensor, axis: Sizes) -> torch.Tensor:
    """With dimensions of size one at these places of the result."""
    axes = sorted(each % (a.dim() + len(axis)) for each in axis) if isinstance(axis, (tuple, list)) else [axis]
    for each in axes:
        a = torch.unsqueeze(a, each)
    return a


@rule("broadcast_to")
def broadcast_to(array: torch.Tensor, shape: Sizes) -> torch.Tensor:
    """A view of this shape that repeats dimensions of size one; it is not written to."""
    return torch.broadcast_to(array, tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))


@rule("flip")
def flip(m: torch.Tensor, axis: Axes = None) -> torch.Tensor:
    """The items in reverse along axes."""
    return torch.flip(m, axes_of(m, axis))


@rule("rot90")
def rot90(m: torch.Tensor, k: int = 1, axes: tuple[int, ...] = (0, 1)) -> torch.Tensor:
    """Turned by ``k`` quarters in the plane of two axes."""
    return torch.rot90(m, k, axes)


@rule("concatenate", "concat", "_core._multiarray_umath.concatenate")
def concatenate(arrays: Sequence[torch.Tensor], axis: int | None = 0, *, as_dtype: torch.dtype) -> torch.Tensor:
    """Arrays one behind the other along a dimension that they have; flat ones without an axis."""
    parts = [array(each, as_dtype=as_dtype) for each in arrays]
    return torch.cat([each.reshape(-1) for each in parts]) if axis is None else torch.cat(parts, dim=axis)


@rule("stack")
def stack(arrays: Sequence[torch.Tensor], axis: int = 0, *, as_dtype: torch.dtype) -> torch.Tensor:
    """Arrays of one shape one behind the other along a new dimension."""
    return torch.stack([array(each, as_dtype=as_dtype) for each in arrays], dim=axis)


@rule("roll")
def roll(a: torch.Tensor, shift: Sizes, axis: Axes = None) -> torch.Tensor:
    """The items moved along; those that leave at an end come in at the other."""
    return torch.roll(a, shift) if axis is None else torch.roll(a, shift, axis)


@rule("tril")
def tril(m: torch.Tensor, k: int = 0) -> torch.Tensor:
    """The items on and below the ``k``-th diagonal, zeros above."""
    return torch.tril(m, k)


@rule("triu")
def triu(m: torch.Tensor, k: int = 0) -> torch.Tensor:
    """The items on and above the ``k``-th diagonal, zeros below."""
    return torch.triu(m, k)


@rule("diag")
def diag(v: torch.Tensor, k: int = 0) -> torch.Tensor:
    """The diagonal of a matrix, or the matrix with this diagonal."""
    return torch.diag(v, k)


@rule("diagonal")
def diagonal(a: torch.Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> torch.Tensor:
    """A view of the items at equal positions of two dimensions."""
    return torch.diagonal(a, offset, axis1, axis2)


@rule("trace")
def trace(a: torch.Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The sum of a diagonal."""
    return torch.sum(torch.diagonal(a.to(as_dtype), offset, axis1, axis2), dim=-1)


@rule("where")
def where(condition: torch.Tensor, x: object, y: object, *, as_dtype: torch.dtype) -> torch.Tensor:
    """Items of ``x`` where the condition is true, of ``y`` elsewhere."""
    return torch.where(as_tensor(condition, torch.bool), as_tensor(x, as_dtype), as_tensor(y, as_dtype))


def as_tensor(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """A number or tensor as a tensor of that type."""
    return value.to(dtype) if isinstance(value, torch.Tensor) else torch.full((), value, dtype=dtype)


@rule("clip")
def clip(
    a: torch.Tensor, a_min: object = None, a_max: object = None, *, min: object = None, max: object = None, as_dtype: torch.dtype
) -> torch.Tensor:
    """The items, none below the first limit nor above the second."""
    low, high = a_min if min is None else min, a_max if max is None else max
    a = a.to(as_dtype)
    if low is not None:
        a = torch.maximum(a, as_tensor(low, as_dtype))
    return a if high is None else torch.minimum(a, as_tensor(high, as_dtype))


@rule("round", "around")
def round_(a: torch.Tensor, decimals: int = 0) -> torch.Tensor:
    """Rounded to decimals, halves to the even neighbour."""
    if not a.is_floating_point():
        if decimals < 0:
            raise NotImplementedError
        return a.clone()
    if decimals == 0:
        return torch.round(a)
    scale = 10.0 ** abs(decimals)
    return torch.round(a * scale) / scale if decimals > 0 else torch.round(a / scale) * scale


@rule("take")
def take(a: torch.Tensor, indices: object, axis: int | None = None) -> torch.Tensor:
    """The items at these positions, along an axis or of the flat array."""
    if axis is None:
        a, axis = a.reshape(-1), 0
    where_ = indices if isinstance(indices, torch.Tensor) else torch.tensor(indices)
    return a[(slice(None),) * (axis % a.dim()) + (where_,)]


@rule("take_along_axis")
def take_along_axis(arr: torch.Tensor, indices: torch.Tensor, axis: int | None = -1) -> torch.Tensor:
    """For each place of ``indices`` the item at that position along the axis."""
    if axis is None:
        arr, axis = arr.reshape(-1), 0
    return torch.take_along_dim(arr, indices, axis)


@rule("nan_to_num")
def nan_to_num(
    x: torch.Tensor, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> torch.Tensor:
    """What is no number, and infinities, exchanged for numbers."""
    if not copy:
        raise NotImplementedError
    return torch.nan_to_num(x, nan, posinf, neginf)


@rule("real")
def real(val: torch.Tensor) -> torch.Tensor:
    """The real parts: a view of complex numbers, real ones themselves."""
    return torch.real(val) if val.is_complex() else val


@rule("imag")
def imag(val: torch.Tensor) -> torch.Tensor:
    """The imaginary parts: a view of complex numbers, zeros of real ones."""
    return torch.imag(val) if val.is_complex() else torch.zeros_like(val)


@rule("conj", "conjugate")
def conj(a: torch.Tensor) -> torch.Tensor:
    """The conjugates; a copy, as NumPy has no views that are marked."""
    return torch.conj_physical(a) if a.is_complex() else a


# ---- making --------------------------------------------------------------------------------------------------------------


@rule("copy")
def copy(a: torch.Tensor, order: str = "K") -> torch.Tensor:
    """A copy, laid out as ``order`` says."""
    return a.clone()


@rule("astype")
def astype(a: torch.Tensor, dtype: object, copy: bool = True, *, as_dtype: torch.dtype) -> torch.Tensor:
    """A copy in another type, or the array itself where it has that type and no copy is asked for."""
    if a.is_complex() and not as_dtype.is_complex:
        raise NotImplementedError  # NumPy warns
    if a.is_floating_point() and not (
        as_dtype.is_floating_point or as_dtype.is_complex or as_dtype == torch.bool or as_dtype == torch.int64
    ):
        return a.to(torch.int64).to(as_dtype)
    return a.to(as_dtype) if as_dtype != a.dtype else a.clone() if copy else a


@rule("view")
def view(a: torch.Tensor, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The same memory read as another type."""
    return a.view(as_dtype)


@rule("array", "asarray", "asanyarray", "ascontiguousarray")
def array(a: Any, dtype: object = None, copy: object = True, *, ndmin: int = 0, as_dtype: torch.dtype) -> torch.Tensor:
    """An array of nested numbers, or of another array."""
    if isinstance(a, (list, tuple)):
        made = torch.stack([array(each, dtype, as_dtype=as_dtype) for each in a])
    else:
        made = a.to(as_dtype) if isinstance(a, torch.Tensor) else torch.full((), a, dtype=as_dtype)
    while made.dim() < ndmin:
        made = torch.unsqueeze(made, 0)
    return made


@rule("zeros", "empty")
def zeros(shape: Sizes, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """Zeros of this shape; memory that is not filled is zeros, too."""
    return torch.zeros(shape, dtype=as_dtype)


@rule("ones")
def ones(shape: Sizes, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """Ones of this shape."""
    return torch.ones(shape, dtype=as_dtype)


@rule("full")
def full(shape: Sizes, fill_value: object, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """One value in this shape."""
    return torch.zeros(shape, dtype=as_dtype) + as_tensor(fill_value, as_dtype)


@rule("eye")
def eye(N: int, M: int | None = None, k: int = 0, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """Ones on the ``k``-th diagonal, zeros elsewhere."""
    rows, columns = torch.arange(N), torch.arange(N if M is None else M)
    return (columns == (rows + k).unsqueeze(1)).to(as_dtype)


@rule("identity")
def identity(n: int, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The square matrix with ones on its diagonal."""
    return eye(n, as_dtype=as_dtype)


@rule("arange")
def arange(start: int, stop: object = None, step: int = 1, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    """Numbers from ``start`` on, ``stop`` left out."""
    first, end = (0, start) if stop is None else (start, stop)
    if not isinstance(first, int) or not isinstance(end, int) or not isinstance(step, int):
        raise NotImplementedError
    return torch.arange(first, end, step).to(as_dtype)


@rule("zeros_like")
def zeros_like(a: torch.Tensor, dtype: object = None, *, shape: Sizes | None = None, as_dtype: torch.dtype) -> torch.Tensor:
    """Zeros in the shape and type of another array."""
    return torch.zeros_like(a, dtype=as_dtype) if shape is None else torch.zeros(shape, dtype=as_dtype)


@rule("empty_like")
def empty_like(prototype: torch.Tensor, dtype: object = None, *, shape: Sizes | None = None, as_dtype: torch.dtype) -> torch.Tensor:
    """An array like another one whose items nobody may rely on."""
    return zeros_like(prototype, shape=shape, as_dtype=as_dtype)


@rule("ones_like")
def ones_like(a: torch.Tensor, dtype: object = None, *, shape: Sizes | None = None, as_dtype: torch.dtype) -> torch.Tensor:
    """Ones in the shape and type of another array."""
    return torch.ones_like(a, dtype=as_dtype) if shape is None else torch.ones(shape, dtype=as_dtype)


@rule("full_like")
def full_like(
    a: torch.Tensor, fill_value: object, dtype: object = None, *, shape: Sizes | None = None, as_dtype: torch.dtype
) -> torch.Tensor:
    """One value in the shape and type of another array."""
    return zeros_like(a, shape=shape, as_dtype=as_dtype) + as_tensor(fill_value, as_dtype)


@rule("meshgrid")
def meshgrid(*xi: torch.Tensor, indexing: str = "xy") -> tuple[torch.Tensor, ...]:
    """The coordinates of all points of a grid, an array for each axis."""
    return tuple(each.clone() for each in torch.meshgrid(*[x.reshape(-1) for x in xi], indexing=indexing))


@rule("vander")
def vander(x: torch.Tensor, N: int | None = None, increasing: bool = False, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The powers of the items as columns (a Vandermonde matrix)."""
    powers = list(range(x.shape[0] if N is None else N))
    return torch.stack([torch.pow(x.to(as_dtype), k) for k in (powers if increasing else reversed(powers))], dim=1)


__all__ = ["FUNCTIONS", "METHODS", "UNITS"]
