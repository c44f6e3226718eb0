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
    return torch.sum(a.to(as_dtype), dim=axes_of(a, axis), keepdim=keepdims) if a.dim() else a.to(as_dtype)


@rule("prod")
def prod(a: torch.Tensor, axis: Axes = None, dtype: object = None, keepdims: bool = False, *, as_dtype: torch.dtype) -> torch.Tensor:
    a = a.to(as_dtype)
    for each in sorted(axes_of(a, axis), reverse=True):
        a = torch.prod(a, dim=each, keepdim=keepdims)
    return a


@rule("mean")
def mean(a: torch.Tensor, axis: Axes = None, dtype: object = None, keepdims: bool = False, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.mean(a.to(as_dtype), dim=axes_of(a, axis), keepdim=keepdims) if a.dim() else a.to(as_dtype)


@rule("var")
def var(
    a: torch.Tensor, axis: Axes = None, dtype: object = None, ddof: int = 0, keepdims: bool = False, *, as_dtype: torch.dtype
) -> torch.Tensor:
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
    return torch.sqrt(var(a, axis, dtype, ddof, keepdims, as_dtype=as_dtype))


@rule("max", "amax")
def max_(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    return torch.amax(a, dim=axes_of(a, axis), keepdim=keepdims)


@rule("min", "amin")
def min_(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    return torch.amin(a, dim=axes_of(a, axis), keepdim=keepdims)


@rule("ptp")
def ptp(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    return max_(a, axis, keepdims) - min_(a, axis, keepdims)


@rule("argmax")
def argmax(a: torch.Tensor, axis: int | None = None, *, keepdims: bool = False) -> torch.Tensor:
    return torch.argmax(a, dim=axis, keepdim=keepdims)


@rule("argmin")
def argmin(a: torch.Tensor, axis: int | None = None, *, keepdims: bool = False) -> torch.Tensor:
    return torch.argmin(a, dim=axis, keepdim=keepdims)


@rule("any")
def any_(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    return torch.any(a.to(torch.bool), dim=axes_of(a, axis), keepdim=keepdims) if a.dim() else a.to(torch.bool)


@rule("all")
def all_(a: torch.Tensor, axis: Axes = None, keepdims: bool = False) -> torch.Tensor:
    return torch.all(a.to(torch.bool), dim=axes_of(a, axis), keepdim=keepdims) if a.dim() else a.to(torch.bool)


@rule("cumsum")
def cumsum(a: torch.Tensor, axis: int | None = None, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.cumsum(a.reshape(-1) if axis is None else a, dim=0 if axis is None else axis, dtype=as_dtype)


@rule("cumprod")
def cumprod(a: torch.Tensor, axis: int | None = None, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.cumprod(a.reshape(-1) if axis is None else a, dim=0 if axis is None else axis, dtype=as_dtype)


@rule("count_nonzero")
def count_nonzero(a: torch.Tensor, axis: Axes = None, *, keepdims: bool = False) -> torch.Tensor:
    return torch.sum(a.to(torch.bool), dim=axes_of(a, axis), keepdim=keepdims)


@rule("nansum")
def nansum(a: torch.Tensor, axis: Axes = None, dtype: object = None, keepdims: bool = False, *, as_dtype: torch.dtype) -> torch.Tensor:
    kept = torch.where(torch.isnan(a), torch.zeros_like(a), a)
    return sum_(kept, axis, dtype, keepdims, as_dtype=as_dtype)


@rule("nanmean")
def nanmean(a: torch.Tensor, axis: Axes = None, dtype: object = None, keepdims: bool = False, *, as_dtype: torch.dtype) -> torch.Tensor:
    count = torch.sum(torch.logical_not(torch.isnan(a)), dim=axes_of(a, axis), keepdim=keepdims)
    return nansum(a, axis, dtype, keepdims, as_dtype=as_dtype) / count


# ---- forms ---------------------------------------------------------------------------------------------------------------


@rule("reshape")
def reshape(a: torch.Tensor, shape: Sizes, order: str = "C") -> torch.Tensor:
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if order == "F":
        return transpose(torch.reshape(transpose(a), tuple(reversed(sizes))))
    if order != "C":
        raise NotImplementedError
    return torch.reshape(a, sizes)


@rule("ravel")
def ravel(a: torch.Tensor, order: str = "C") -> torch.Tensor:
    return reshape(a, -1, order)


@rule("flatten")
def flatten(a: torch.Tensor, order: str = "C") -> torch.Tensor:
    return ravel(a, order).clone()


@rule("transpose", "permute_dims")
def transpose(a: torch.Tensor, axes: Sequence[int] | None = None) -> torch.Tensor:
    return torch.permute(a, tuple(reversed(range(a.dim()))) if axes is None else tuple(axes))


@rule("matrix_transpose")
def matrix_transpose(a: torch.Tensor) -> torch.Tensor:
    return torch.transpose(a, -1, -2)


@rule("swapaxes")
def swapaxes(a: torch.Tensor, axis1: int, axis2: int) -> torch.Tensor:
    return torch.transpose(a, axis1, axis2)


@rule("moveaxis")
def moveaxis(a: torch.Tensor, source: Any, destination: Any) -> torch.Tensor:
    return torch.movedim(a, source, destination)


@rule("squeeze")
def squeeze(a: torch.Tensor, axis: Axes = None) -> torch.Tensor:
    return torch.squeeze(a) if axis is None else torch.squeeze(a, axis)


@rule("expand_dims")
def expand_dims(a: torch.Tensor, axis: Sizes) -> torch.Tensor:
    axes = sorted(each % (a.dim() + len(axis)) for each in axis) if isinstance(axis, (tuple, list)) else [axis]
    for each in axes:
        a = torch.unsqueeze(a, each)
    return a


@rule("broadcast_to")
def broadcast_to(array: torch.Tensor, shape: Sizes) -> torch.Tensor:
    return torch.broadcast_to(array, tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))


@rule("flip")
def flip(m: torch.Tensor, axis: Axes = None) -> torch.Tensor:
    return torch.flip(m, axes_of(m, axis))


@rule("rot90")
def rot90(m: torch.Tensor, k: int = 1, axes: tuple[int, ...] = (0, 1)) -> torch.Tensor:
    return torch.rot90(m, k, axes)


@rule("concatenate", "concat", "_core._multiarray_umath.concatenate")
def concatenate(arrays: Sequence[torch.Tensor], axis: int | None = 0, *, as_dtype: torch.dtype) -> torch.Tensor:
    parts = [array(each, as_dtype=as_dtype) for each in arrays]
    return torch.cat([each.reshape(-1) for each in parts]) if axis is None else torch.cat(parts, dim=axis)


@rule("stack")
def stack(arrays: Sequence[torch.Tensor], axis: int = 0, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.stack([array(each, as_dtype=as_dtype) for each in arrays], dim=axis)


@rule("roll")
def roll(a: torch.Tensor, shift: Sizes, axis: Axes = None) -> torch.Tensor:
    return torch.roll(a, shift) if axis is None else torch.roll(a, shift, axis)


@rule("tril")
def tril(m: torch.Tensor, k: int = 0) -> torch.Tensor:
    return torch.tril(m, k)


@rule("triu")
def triu(m: torch.Tensor, k: int = 0) -> torch.Tensor:
    return torch.triu(m, k)


@rule("diag")
def diag(v: torch.Tensor, k: int = 0) -> torch.Tensor:
    return torch.diag(v, k)


@rule("diagonal")
def diagonal(a: torch.Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> torch.Tensor:
    return torch.diagonal(a, offset, axis1, axis2)


@rule("trace")
def trace(a: torch.Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.sum(torch.diagonal(a.to(as_dtype), offset, axis1, axis2), dim=-1)


@rule("where")
def where(condition: torch.Tensor, x: object, y: object, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.where(as_tensor(condition, torch.bool), as_tensor(x, as_dtype), as_tensor(y, as_dtype))


def as_tensor(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """A number or tensor as a tensor of that type."""
    return value.to(dtype) if isinstance(value, torch.Tensor) else torch.full((), value, dtype=dtype)


@rule("clip")
def clip(
    a: torch.Tensor, a_min: object = None, a_max: object = None, *, min: object = None, max: object = None, as_dtype: torch.dtype
) -> torch.Tensor:
    low, high = a_min if min is None else min, a_max if max is None else max
    a = a.to(as_dtype)
    if low is not None:
        a = torch.maximum(a, as_tensor(low, as_dtype))
    return a if high is None else torch.minimum(a, as_tensor(high, as_dtype))


@rule("round", "around")
def round_(a: torch.Tensor, decimals: int = 0) -> torch.Tensor:
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
    if axis is None:
        a, axis = a.reshape(-1), 0
    where_ = indices if isinstance(indices, torch.Tensor) else torch.tensor(indices)
    return a[(slice(None),) * (axis % a.dim()) + (where_,)]


@rule("take_along_axis")
def take_along_axis(arr: torch.Tensor, indices: torch.Tensor, axis: int | None = -1) -> torch.Tensor:
    if axis is None:
        arr, axis = arr.reshape(-1), 0
    return torch.take_along_dim(arr, indices, axis)


@rule("nan_to_num")
def nan_to_num(
    x: torch.Tensor, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> torch.Tensor:
    if not copy:
        raise NotImplementedError
    return torch.nan_to_num(x, nan, posinf, neginf)


@rule("real")
def real(val: torch.Tensor) -> torch.Tensor:
    return torch.real(val) if val.is_complex() else val


@rule("imag")
def imag(val: torch.Tensor) -> torch.Tensor:
    return torch.imag(val) if val.is_complex() else torch.zeros_like(val)


@rule("conj", "conjugate")
def conj(a: torch.Tensor) -> torch.Tensor:
    return torch.conj_physical(a) if a.is_complex() else a


# ---- making --------------------------------------------------------------------------------------------------------------


@rule("copy")
def copy(a: torch.Tensor, order: str = "K") -> torch.Tensor:
    return a.clone()


@rule("astype")
def astype(a: torch.Tensor, dtype: object, copy: bool = True, *, as_dtype: torch.dtype) -> torch.Tensor:
    if a.is_complex() and not as_dtype.is_complex:
        raise NotImplementedError  # NumPy warns
    if a.is_floating_point() and not (
        as_dtype.is_floating_point or as_dtype.is_complex or as_dtype == torch.bool or as_dtype == torch.int64
    ):
        return a.to(torch.int64).to(as_dtype)
    return a.to(as_dtype) if as_dtype != a.dtype else a.clone() if copy else a


@rule("view")
def view(a: torch.Tensor, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    return a.view(as_dtype)


@rule("array", "asarray", "asanyarray", "ascontiguousarray")
def array(a: Any, dtype: object = None, copy: object = True, *, ndmin: int = 0, as_dtype: torch.dtype) -> torch.Tensor:
    if isinstance(a, (list, tuple)):
        made = torch.stack([array(each, dtype, as_dtype=as_dtype) for each in a])
    else:
        made = a.to(as_dtype) if isinstance(a, torch.Tensor) else torch.full((), a, dtype=as_dtype)
    while made.dim() < ndmin:
        made = torch.unsqueeze(made, 0)
    return made


@rule("zeros", "empty")
def zeros(shape: Sizes, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(shape, dtype=as_dtype)


@rule("ones")
def ones(shape: Sizes, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.ones(shape, dtype=as_dtype)


@rule("full")
def full(shape: Sizes, fill_value: object, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(shape, dtype=as_dtype) + as_tensor(fill_value, as_dtype)


@rule("eye")
def eye(N: int, M: int | None = None, k: int = 0, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    rows, columns = torch.arange(N), torch.arange(N if M is None else M)
    return (columns == (rows + k).unsqueeze(1)).to(as_dtype)


@rule("identity")
def identity(n: int, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    return eye(n, as_dtype=as_dtype)


@rule("arange")
def arange(start: int, stop: object = None, step: int = 1, dtype: object = None, *, as_dtype: torch.dtype) -> torch.Tensor:
    first, end = (0, start) if stop is None else (start, stop)
    if not isinstance(first, int) or not isinstance(end, int) or not isinstance(step, int):
        raise NotImplementedError
    return torch.arange(first, end, step).to(as_dtype)


@rule("zeros_like")
def zeros_like(a: torch.Tensor, dtype: object = None, *, shape: Sizes | None = None, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros_like(a, dtype=as_dtype) if shape is None else torch.zeros(shape, dtype=as_dtype)


@rule("empty_like")
def empty_like(prototype: torch.Tensor, dtype: object = None, *, shape: Sizes | None = None, as_dtype: torch.dtype) -> torch.Tensor:
    return zeros_like(prototype, shape=shape, as_dtype=as_dtype)


@rule("ones_like")
def ones_like(a: torch.Tensor, dtype: object = None, *, shape: Sizes | None = None, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.ones_like(a, dtype=as_dtype) if shape is None else torch.ones(shape, dtype=as_dtype)


@rule("full_like")
def full_like(
    a: torch.Tensor, fill_value: object, dtype: object = None, *, shape: Sizes | None = None, as_dtype: torch.dtype
) -> torch.Tensor:
    return zeros_like(a, shape=shape, as_dtype=as_dtype) + as_tensor(fill_value, as_dtype)


@rule("meshgrid")
def meshgrid(*xi: torch.Tensor, indexing: str = "xy") -> tuple[torch.Tensor, ...]:
    return tuple(each.clone() for each in torch.meshgrid(*[x.reshape(-1) for x in xi], indexing=indexing))


@rule("vander")
def vander(x: torch.Tensor, N: int | None = None, increasing: bool = False, *, as_dtype: torch.dtype) -> torch.Tensor:
    powers = list(range(x.shape[0] if N is None else N))
    return torch.stack([torch.pow(x.to(as_dtype), k) for k in (powers if increasing else reversed(powers))], dim=1)


# ---- products and linear algebra -----------------------------------------------------------------------------------------


@rule("matmul")
def matmul(x1: torch.Tensor, x2: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.matmul(x1.to(as_dtype), x2.to(as_dtype))


@rule("dot")
def dot(a: torch.Tensor, b: object, *, as_dtype: torch.dtype) -> torch.Tensor:
    a, b = as_tensor(a, as_dtype), as_tensor(b, as_dtype)
    if a.dim() == 0 or b.dim() == 0:
        return a * b
    return torch.tensordot(a, b, dims=([a.dim() - 1], [max(b.dim() - 2, 0)]))


@rule("inner")
def inner(a: torch.Tensor, b: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    a, b = a.to(as_dtype), b.to(as_dtype)
    return a * b if a.dim() == 0 or b.dim() == 0 else torch.tensordot(a, b, dims=([a.dim() - 1], [b.dim() - 1]))


@rule("outer")
def outer(a: torch.Tensor, b: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    return a.to(as_dtype).reshape(-1, 1) * b.to(as_dtype).reshape(1, -1)


@rule("kron")
def kron(a: torch.Tensor, b: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.kron(a.to(as_dtype), b.to(as_dtype))


@rule("cross")
def cross(a: torch.Tensor, b: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise NotImplementedError
    return torch.linalg.cross(a.to(as_dtype), b.to(as_dtype))


@rule("vdot")
def vdot(a: torch.Tensor, b: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    a, b = a.to(as_dtype).reshape(-1), b.to(as_dtype).reshape(-1)
    return torch.sum((torch.conj_physical(a) if a.is_complex() else a) * b)


@rule("tensordot")
def tensordot(a: torch.Tensor, b: torch.Tensor, axes: object = 2, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.tensordot(a.to(as_dtype), b.to(as_dtype), dims=axes)


@rule("einsum")
def einsum(subscripts: str, *operands: torch.Tensor, optimize: object = False, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.einsum(subscripts, *[each.to(as_dtype) for each in operands])


@rule("linalg.inv")
def inv(a: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.linalg.inv(a.to(as_dtype))


@rule("linalg.det")
def det(a: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.linalg.det(a.to(as_dtype))


@rule("linalg.slogdet")
def slogdet(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if not a.is_floating_point():
        raise NotImplementedError
    found = torch.linalg.slogdet(a)
    return found[0], found[1]


@rule("linalg.solve")
def solve(a: torch.Tensor, b: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    if b.dim() > 1 and b.dim() != a.dim():
        raise NotImplementedError
    return torch.linalg.solve(a.to(as_dtype), b.to(as_dtype))


@rule("linalg.qr")
def qr(a: torch.Tensor, mode: str = "reduced") -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    if mode not in ("reduced", "complete", "r") or not a.is_floating_point():
        raise NotImplementedError
    found = torch.linalg.qr(a, mode)
    return found[1] if mode == "r" else (found[0], found[1])


@rule("linalg.svdvals")
def svdvals(x: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.linalg.svdvals(x.to(as_dtype))


@rule("linalg.svd")
def svd(a: torch.Tensor, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> torch.Tensor:
    if compute_uv or hermitian or not a.is_floating_point():
        raise NotImplementedError  # the signs of vectors are each library's own
    return torch.linalg.svdvals(a)


@rule("linalg.pinv")
def pinv(a: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    left, values, right = torch.linalg.svd(a.to(as_dtype), full_matrices=False)
    kept = values > 1e-15 * torch.amax(values, dim=-1, keepdim=True)
    inverse = torch.where(kept, 1 / values, torch.zeros_like(values))
    return right.mH @ (inverse.unsqueeze(-1) * left.mH)


@rule("linalg.cholesky")
def cholesky(a: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.linalg.cholesky(a.to(as_dtype))


@rule("linalg.eigvalsh")
def eigvalsh(a: torch.Tensor, UPLO: str = "L", *, as_dtype: torch.dtype) -> torch.Tensor:
    return torch.linalg.eigvalsh(a, UPLO).to(as_dtype)


UNITS |= {"linalg.inv", "linalg.solve", "linalg.cholesky", "linalg.det", "linalg.eigvalsh", "linalg.slogdet"}

# ---- Fourier transforms --------------------------------------------------------------------------------------------------


def _transform(name: str) -> None:
    function = getattr(torch.fft, name)

    @rule(f"fft.{name}")
    def one(a: torch.Tensor, n: object = None, axis: int = -1, norm: object = None) -> torch.Tensor:
        return function(a, n, axis, norm)


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    _transform(_name)


def _transforms(name: str, axes: object) -> None:
    function = getattr(torch.fft, name)

    @rule(f"fft.{name}")
    def several(a: torch.Tensor, s: object = None, axes: object = axes, norm: object = None) -> torch.Tensor:
        return function(a, s, axes, norm)


for _name in ("fft2", "ifft2", "rfft2", "irfft2"):
    _transforms(_name, (-2, -1))
for _name in ("fftn", "ifftn", "rfftn", "irfftn"):
    _transforms(_name, None)

__all__ = ["FUNCTIONS", "METHODS", "UNITS"]
