"""Reductions, softmax and normalisations: results are contiguous."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..strides import same
from ..symbols.asking import demanded, surely
from ..symbols.layouts import in_rows
from ..table import Rules, alike, channels_last, dense, image

RULES = Rules()
SYMBOLIC = Rules()
Tensor = torch.Tensor


def _sizes(x: Tensor, dim: Any, keepdim: bool) -> tuple[int, ...] | None:
    """Sizes after reducing ``dim`` (a number, a list, None or nothing: all); None where it does not fit."""
    rank = x.dim()
    single = type(dim) is int
    if dim is None or (not single and not dim):
        return (1,) * rank if keepdim else ()
    dims = (dim,) if single else tuple(dim)
    bound = max(rank, 1)
    if any(not -bound <= d < bound for d in dims):
        return None
    positive = {d % bound for d in dims}
    if len(positive) != len(dims):
        return None
    sizes = x.size()
    return tuple(1 if k in positive else n for k, n in enumerate(sizes) if keepdim or k not in positive)


def _reduced(x: Tensor, dim: Any, keepdim: bool, *dtypes: torch.dtype) -> Any:
    sizes = _sizes(x, dim, keepdim)
    if sizes is None:
        return NotImplemented
    out = tuple(dense(sizes, d) for d in dtypes)
    return out if len(out) > 1 else out[0]


def _summed(x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or (x.dtype if x.is_floating_point() or x.is_complex() else torch.int64)


def _reduces_something(x: Tensor, dim: Any) -> bool:
    """Whether no dimension is empty; of sizes that only data tell, those that are reduced must not be."""
    rank = x.dim()
    listed: Sequence[int] = () if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = {d % max(rank, 1) for d in listed} or None
    return not any(surely(n == 0) for n in x.size()) and all(demanded(n != 0) for d, n in enumerate(x.size()) if dims is None or d in dims)


@RULES.row("_is_all_true _is_any_true")
def _truth_of_all(overload: str, x: Tensor) -> Any:
    """What distributions ask of their parameters. Others than truths are refused."""
    return dense((), torch.bool) if x.dtype is torch.bool else NotImplemented


@RULES.row("sum nansum")
def _sum(overload: str, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    return _reduced(x, dim, keepdim, _summed(x, dtype)) if overload in ("", "dim_IntList") else NotImplemented


@RULES.row("prod")
def _prod(overload: str, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    return _reduced(x, dim, keepdim, _summed(x, dtype)) if overload in ("", "dim_int") else NotImplemented


@RULES.row("mean")
def _mean(overload: str, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    dtype = dtype or x.dtype
    divides = dtype.is_floating_point or (dtype.is_complex and x.is_complex())
    return _reduced(x, dim, keepdim, dtype) if overload in ("", "dim") and divides else NotImplemented


@RULES.row("amax amin")
def _amax(overload: str, x: Tensor, dim: Any = (), keepdim: bool = False) -> Any:
    return NotImplemented if x.is_complex() or not _reduces_something(x, dim) else _reduced(x, dim, keepdim, x.dtype)


@RULES.row("argmax argmin")
def _argmax(overload: str, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return (
        NotImplemented
        if x.is_complex() or x.dtype is torch.bool or not _reduces_something(x, dim)
        else _reduced(x, dim, keepdim, torch.int64)
    )


@RULES.row("max min")
def _max(overload: str, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    if x.is_complex() or overload not in ("", "dim") or not _reduces_something(x, dim):
        return NotImplemented
    return _reduced(x, None, False, x.dtype) if overload == "" else _reduced(x, dim, keepdim, x.dtype, torch.int64)


@RULES.row("any all")
def _any(overload: str, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    dtype = torch.uint8 if x.dtype is torch.uint8 else torch.bool
    if overload == "dims" and dim is not None and not dim:  # over no dimension: the truth of each element
        return dense(x.size(), dtype)
    return _reduced(x, dim, keepdim, dtype)


@RULES.row("var std")
def _var(overload: str, x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _reduced(x, dim, keepdim, x.dtype) if overload == "correction" and x.is_floating_point() else NotImplemented


@RULES.row("var_mean std_mean")
def _var_mean(overload: str, x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _reduced(x, dim, keepdim, x.dtype, x.dtype) if overload == "correction" and x.is_floating_point() else NotImplemented


@RULES.row("_softmax _log_softmax")
def _softmax(overload: str, x: Tensor, dim: int, half_to_float: bool) -> Any:
    bound = max(x.dim(), 1)
    ok = overload == "" and x.is_floating_point() and not half_to_float and -bound <= dim < bound
    return dense(x.size(), x.dtype) if ok else NotImplemented


@RULES.row("cumsum cumprod")
def _cumsum(overload: str, x: Tensor, dim: Any, *, dtype: torch.dtype | None = None) -> Any:
    bound = max(x.dim(), 1)
    return dense(x.size(), _summed(x, dtype)) if overload == "" and -bound <= dim < bound else NotImplemented


# ---- normalisations ------------------------------------------------------------------------------------------------


def _statistics_type(x: Tensor, weight: Tensor | None) -> torch.dtype | None:
    """float32 where a narrow input meets float32 parameters; None where the types do not go together."""
    if weight is None or weight.dtype == x.dtype:
        return x.dtype if x.is_floating_point() else None
    return torch.float32 if x.dtype in (torch.bfloat16, torch.float16) and weight.dtype is torch.float32 else None


@RULES.row("native_layer_norm")
def layer_norm(overload: str, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    """The result, and means and deviations of rows as a processor has them."""
    dtype, split = _statistics_type(x, weight), x.dim() - len(shape)
    fits = all(p is None or same(p.size(), shape) for p in (weight, bias))
    if dtype is None or split < 0 or not shape or not same(x.size()[split:], shape) or not fits or _statistics_type(x, bias) is None:
        return NotImplemented
    sizes = (*x.size()[:split], *(1 for _ in shape))
    return dense(x.size(), x.dtype), dense(sizes, dtype), dense(sizes, dtype)


@SYMBOLIC.row("native_layer_norm_backward")
def _layer_norm_backward(
    overload: str, grad: Tensor, x: Tensor, shape: Any, mean: Tensor, rstd: Tensor, weight: Any, bias: Any, mask: Sequence[bool]
) -> Any:
    sizes = [x.size(), *(x.size()[x.dim() - len(shape) :] for _ in range(2))]
    wanted = (mask[0], mask[1] and weight is not None, mask[2] and bias is not None)
    dtypes = [x.dtype if p is None else p.dtype for p in (x, weight, bias)]
    return tuple(dense(n, d) if w else None for n, d, w in zip(sizes, dtypes, wanted, strict=True)) if overload == "" else NotImplemented


@RULES.row("native_group_norm")
def _group_norm(overload: str, x: Tensor, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float) -> Any:
    dtype = _statistics_type(x, weight)
    if dtype is None or overload != "" or x.numel() != n * c * hw or groups <= 0 or c % groups or not x.numel():
        return NotImplemented
    if any(p is not None and (p.dim() != 1 or p.size(0) != c) for p in (weight, bias)):
        return NotImplemented
    return image(x.size(), x.dtype, channels_last(x)), dense((n, groups), dtype), dense((n, groups), dtype)


@RULES.row("native_group_norm_backward")
def _group_norm_backward(
    overload: str,
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Any,
    n: int,
    c: int,
    hw: int,
    groups: int,
    mask: Sequence[bool],
) -> Any:
    """Of a narrow input and wide parameters: torch's meta kernel gives all three in the wide type."""
    if overload != "" or weight is None or weight.dtype == x.dtype:
        return NotImplemented
    results = image(x.size(), x.dtype, channels_last(x)), dense((c,), weight.dtype), dense((c,), weight.dtype)
    return tuple(r if w else None for r, w in zip(results, mask, strict=True))


@RULES.row("native_batch_norm")
def batch_norm(overload: str, x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float) -> Any:
    """The result, and means and deviations of channels as a processor has them; none without training."""
    dtype = _statistics_type(x, weight if weight is not None else mean)
    if overload != "" or dtype is None or x.dim() < 2 or surely(x.numel() == 0) or (not training and (mean is None or var is None)):
        return NotImplemented
    saved = (x.size(1),) if training else (0,)
    last = not in_rows(x) and (channels_last(x) or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)))
    return image(x.size(), x.dtype, last), dense(saved, dtype), dense(saved, dtype)


@RULES.row("_native_batch_norm_legit")
def batch_norm_legit(overload: str, x: Tensor, weight: Any, bias: Any, *rest: Any) -> Any:
    """As ``batch_norm``, with and without running statistics."""
    mean, var, training, momentum, eps = rest if overload == "" else (None, None, *rest)
    return batch_norm("", x, weight, bias, mean, var, training, momentum, eps) if overload in ("", "no_stats") else NotImplemented


# ---- orders --------------------------------------------------------------------------------------------------------


@RULES.row("isin")
def _isin(overload: str, elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """In rows, however the elements lie: torch's own meta kernel in Python keeps their order."""
    if overload not in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"):
        return NotImplemented
    return dense(elements.size() if isinstance(elements, Tensor) else (), torch.bool)


@RULES.row("topk")
def _topk(overload: str, x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    rank = x.dim()
    if overload != "" or not rank or not -rank <= dim < rank or not (demanded(k >= 0) and demanded(k <= x.size(dim))):
        return NotImplemented
    sizes = list(x.size())
    sizes[dim] = k
    return dense(sizes, x.dtype), dense(sizes, torch.int64)


@RULES.row("sort")
def _sort(overload: str, x: Tensor, dim: int = -1, descending: bool = False, *, stable: Any = None) -> Any:
    rank = x.dim()
    return (alike(x), alike(x, torch.int64)) if overload in ("", "stable") and rank and -rank <= dim < rank else NotImplemented


@RULES.row("logsumexp")
def _logsumexp(overload: str, x: Tensor, dim: Any, keepdim: bool = False) -> Any:
    return _reduced(x, dim, keepdim, x.dtype) if overload == "" and x.is_floating_point() and dim else NotImplemented
