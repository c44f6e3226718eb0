"""What kernels check of numbers and shapes, and torch's meta kernels do not. A row takes what the operator takes, with meta tensors for
tensors, and raises what eager raises, in its words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..bare import no_dispatch, no_levels
from ..errors import DataDependent
from ..symbols.asking import demanded

Tensor = torch.Tensor
RULES: dict[str, Callable[..., Any]] = {}
CHECKS: dict[str, Callable[..., None]] = {}
_MOST_DIMS = 64
NAMES = {
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.bool: "Bool",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
}
"""Element types as kernels name them."""


def check(names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The decorated function is the check of these operators (names without ``aten::``)."""

    def add(fn: Callable[..., None]) -> Callable[..., None]:
        CHECKS.update({f"aten::{n}": fn for n in names.split()})
        return fn

    return add


def shown(sizes: Sequence[Any]) -> str:
    """Sizes as kernels write them: ``[2, 3]``."""
    return f"[{', '.join(map(str, sizes))}]"


@check("smooth_l1_loss")
def _smooth_l1(x: Tensor, y: Tensor, reduction: int = 1, beta: float = 1.0, **_: Any) -> None:
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")


@check("huber_loss")
def _huber(x: Tensor, y: Tensor, reduction: int = 1, delta: float = 1.0, **_: Any) -> None:
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")


@check("pow pow_ _foreach_pow _foreach_pow_")
def _pow(x: Any, by: Any, **_: Any) -> None:
    bases = [t for t in (x if isinstance(x, (list, tuple)) else (x,)) if isinstance(t, Tensor)]
    whole = any(not (t.dtype.is_floating_point or t.dtype.is_complex) for t in bases)
    if whole and type(by) is int and by < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")


def _spaced(name: str) -> Callable[..., None]:
    def refuse(start: Any, end: Any, steps: int, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> None:
        if (
            dtype is not None
            and not dtype.is_complex
            and any(isinstance(v, complex) or (isinstance(v, Tensor) and v.is_complex()) for v in (start, end))
        ):
            inferred = "double" if torch.get_default_dtype() is torch.float64 else "float"
            raise RuntimeError(
                f"torch.{name}(): inferred dtype c10::complex<{inferred}> can't be safely cast to passed dtype "
                f"{NAMES.get(dtype, str(dtype))}"
            )

    return refuse


CHECKS.update({f"aten::{name}": _spaced(name) for name in ("linspace", "logspace")})


@check("softshrink")
def _softshrink(x: Tensor, lambd: float = 0.5, **_: Any) -> None:
    most = torch.finfo(x.dtype).max if x.dtype.is_floating_point else None
    if most is not None and not 0 <= lambd <= most:
        kind = NAMES.get(x.dtype, str(x.dtype))
        raise RuntimeError(f"lambda must be in range [0, {most:g}] for input dtype {kind}, but found {lambd:g}")


@check("avg_pool2d avg_pool3d")
def _avg_pool(
    x: Tensor,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_padding: bool = True,
    divisor_override: Any = None,
    **_: Any,
) -> None:
    if divisor_override is not None and divisor_override == 0:
        raise RuntimeError("divisor must be not zero")


@check("gelu gelu_")
def _gelu(x: Tensor, *, approximate: str = "none", **_: Any) -> None:
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")


@check("bucketize")
def _bucketize(x: Any, boundaries: Tensor, **_: Any) -> None:
    if boundaries.dim() != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.dim()})")


def equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two lists of sizes are the same; demanded of those that only data tell."""
    return len(a) == len(b) and all(n is m or demanded(n == m) for n, m in zip(a, b, strict=True))


def _scattered(view_of: Callable[..., Tensor], x: Tensor, src: Tensor, *where: Any, **named: Any) -> None:
    """What is scattered has the sizes of the view that it is written to. Of symbolic sizes only diagonals are taken without assuming them;
    torch's kernels in Python check the rest."""
    numbers = [*x.size(), *src.size(), *where, *named.values()]
    if view_of is not torch.diagonal and any(type(n) is torch.SymInt for n in pytree.tree_leaves(numbers)):
        return
    try:
        view = view_of(x, *where, **named)
    except DataDependent:
        return
    if not equal(view.size(), src.size()):
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {shown(src.size())}, slice size = {shown(view.size())}"
        )


CHECKS.update(
    {
        f"aten::{name}_scatter": partial(_scattered, view_of)
        for name, view_of in (
            ("diagonal", torch.diagonal),
            ("select", torch.select),
            ("slice", torch.ops.aten.slice.Tensor),
            ("as_strided", torch.as_strided),
        )
    }
)


@check("put put_")
def _put(x: Tensor, index: Tensor, source: Tensor, *_: Any, **__: Any) -> None:
    if not equal([source.numel()], [index.numel()]):
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source.numel()}, index.numel() = {index.numel()}"
        )


@check("soft_margin_loss")
def _soft_margin(x: Tensor, target: Tensor, *_: Any, **__: Any) -> None:
    """Written to a tensor of the sizes of ``x``, whatever is reduced."""
    sizes = (x + target).size()
    if not equal(sizes, x.size()):
        raise RuntimeError(f"output with shape {shown(x.size())} doesn't match the broadcast shape {shown(sizes)}")


@check("segment_reduce")
def _segment_reduce(x: Tensor, reduce: str, *, lengths: Any = None, offsets: Any = None, **_: Any) -> None:
    name, given = ("offsets", offsets) if offsets is not None else ("lengths", lengths)
    if given is not None and x.dim() < given.dim():
        raise RuntimeError(
            f"Expected data.dim() >= {name}_value.dim() to be true, but got false.  (Could this error message be improved?  "
            "If so, please report an enhancement request to PyTorch.)"
        )


@check("aminmax sum mean var std var_mean std_mean norm logsumexp any all prod")
def _reduced(x: Tensor, *_: Any, **__: Any) -> None:
    if x.dim() > _MOST_DIMS:
        raise RuntimeError(f"only tensors with up to {_MOST_DIMS} dims are supported")


def _empty_along(x: Tensor, dim: int) -> bool:
    return -x.dim() <= dim < x.dim() and type(size := x.size(dim)) is int and size == 0


def _is_empty(x: Tensor) -> bool:
    return any(_empty_along(x, d) for d in range(x.dim()))


NOTHING_TO_CHOOSE = (
    "{}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
)


def _of_something(name: str) -> Callable[..., None]:
    def refuse(x: Tensor, *where: Any, **named: Any) -> None:
        dim = named["dim"] if "dim" in named else next((d for d in where if type(d) is int), None)
        if name == "mode" and dim is None:
            dim = -1
        if name in ("max", "min") and not (where or named) and _is_empty(x):
            raise RuntimeError(NOTHING_TO_CHOOSE.format(name))  # of booleans torch's own kernel of sizes does not say it
        if dim is None or not x.dim() or not -x.dim() <= dim < x.dim() or not _is_empty(x):
            return
        if _empty_along(x, dim):
            raise IndexError(f"{name}(): Expected reduction dim {dim % x.dim()} to have non-zero size.")

    return refuse


CHECKS.update(
    {
        f"aten::{op}": _of_something(name)
        for op, name in {"max": "max", "min": "min", "median": "median", "nanmedian": "median", "mode": "mode"}.items()
    }
)


def _extreme(name: str) -> Callable[..., None]:
    def refuse(x: Tensor, dim: Any = (), *_: Any, **__: Any) -> None:
        """Along a dimension without elements there is nothing to choose from."""
        _reduced(x)
        dims = (dim,) if isinstance(dim, int) else tuple(dim or ())
        if _is_empty(x) and not dims:
            raise RuntimeError(NOTHING_TO_CHOOSE.format(name))
        for each in dims:
            if _empty_along(x, each):
                raise IndexError(f"{name}(): Expected reduction dim {each} to have non-zero size.")
        if all(-x.dim() <= d < x.dim() for d in dims):
            told = [d % x.dim() for d in dims]
            for place, each in enumerate(told):
                if each in told[:place]:
                    raise RuntimeError(f"dim {each} appears multiple times in the list of dims")

    return refuse


CHECKS.update({f"aten::{name}": _extreme(name) for name in ("amax", "amin")})


def _demand_dimension(x: Tensor, dim: int) -> None:
    """A dimension that is not there, in eager's words: some meta kernels say it in others."""
    rank = max(x.dim(), 1)
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")


def _place(name: str) -> Callable[..., None]:
    def refuse(x: Tensor, dim: int | None = None, *_: Any, **__: Any) -> None:
        if dim is None and _is_empty(x):
            raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
        if dim is not None:
            _demand_dimension(x, dim)
            if _empty_along(x, dim):
                raise IndexError(f"{name}(): Expected reduction dim {dim % x.dim()} to have non-zero size.")

    return refuse


CHECKS.update({f"aten::{name}": _place(name) for name in ("argmax", "argmin")})


def _running(name: str) -> Callable[..., None]:
    def refuse(x: Tensor, dim: int, **_: Any) -> None:
        if not x.dim() and dim not in (-1, 0):
            raise IndexError(f"{name}(): Expected reduction dim -1 or 0 for scalar but got {dim}")
        if x.dim() and _is_empty(x) and not -x.dim() <= dim < x.dim():
            with no_dispatch(), no_levels():  # some versions of torch take any dimension of nothing
                getattr(torch, name)(torch.empty([n if type(n) is int else 1 for n in x.size()]), dim)
        elif x.dim():
            _demand_dimension(x, dim)

    return refuse


CHECKS.update({f"aten::{name}": _running(name) for name in ("cummax", "cummin")})


@check("_softmax sort argsort")
def _along(x: Tensor, *where: Any, dim: int | None = None, **_: Any) -> None:
    if dim is None:
        dim = next((d for d in where if type(d) is int), -1)
    _demand_dimension(x, dim)
