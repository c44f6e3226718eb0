"""NumPy itself as a step of a graph: ``opmill_numpy::call`` is a function of NumPy's, for what torch has no program of, or computes in
another way.

Its arguments are the function's name, the arrays, what it is told beside them (a text in JSON, in which arrays have numbers), and the sizes
and dtypes of its results, which do not depend on data. A name that begins with an exclamation mark is a function that writes to its first
array: the result is what a copy of that becomes. One with a question mark raises AssertionError: the result is whether it does not."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import cast

import torch

from opmill_fake_tensors.forking import ForkLock

from ...values.arrays import Array

SPACE = "opmill_numpy"
SCHEMA = "call(str name, Tensor[] arrays, str told, SymInt[] sizes, str results) -> Tensor[]"
Told = Array
"""What NumPy is given, or gives: an array, a number, or lists, tuples and dicts of these."""
#: Functions and methods whose arguments, but for what is in their arrays, decide dtypes and sizes of results.
STEPS = frozenset(
    "sort argsort partition argpartition sum prod mean std var max amax min amin any all ptp argmax argmin round around trace cumsum "
    "cumprod "
    "median quantile percentile nansum nanmean nanmedian nanquantile nanpercentile nanstd nanvar nanmax nanmin nanargmax nanargmin "
    "correlate convolve interp digitize searchsorted choose packbits unpackbits ravel_multi_index unravel_index histogram histogram2d "
    "polyfit i0 ravel flatten reshape copy pad clip where dot inner outer tensordot einsum kron cross nan_to_num count_nonzero lexsort "
    "take take_along_axis isin diagflat conj conjugate vdot "
    "linalg.eigh linalg.eigvalsh linalg.svd linalg.svdvals linalg.qr linalg.inv linalg.pinv linalg.solve linalg.det linalg.slogdet "
    "linalg.cholesky linalg.matrix_rank linalg.cond linspace logspace geomspace "
    "fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2 fft.fftn fft.ifftn fft.rfftn "
    "fft.irfftn".split()
)
#: Of those that write to their first array, the ones that are no steps otherwise; and checks.
WRITERS = frozenset("setitem copyto place putmask fill put fill_diagonal put_along_axis".split())
CHECKS = frozenset(
    "assert_allclose assert_array_equal assert_equal assert_array_almost_equal assert_almost_equal assert_array_less".split()
)
_CHECKS = frozenset(f"testing.{name}" for name in CHECKS)
_lock = ForkLock()
_library: list[torch.library.Library] = []


def operator() -> torch._ops.OpOverload[..., Told]:
    """The operator, which is defined where it is first asked for."""
    with _lock:
        if not _library:
            _library.append(_defined())
    return torch.ops.opmill_numpy.call.default


def _defined() -> torch.library.Library:
    library = torch.library.Library(SPACE, "FRAGMENT")
    library.define(SCHEMA)
    library.impl("call", run, "CPU")
    library.impl("call", empty, "Meta")
    for key in ("Autograd", "ADInplaceOrView"):
        library.impl("call", torch.library.fallthrough_kernel, key)
    call: Told = torch.ops.opmill_numpy.call.default
    call.opmill_shapes = lambda name, overload, args, kwargs: empty(*args)
    return library


#: What a step is told does not change, and is only read.
read = functools.lru_cache(maxsize=1024)(json.loads)


@functools.lru_cache(maxsize=1024)
def function_of(name: str) -> Callable[..., Told]:
    """The function of this name; of a method (``.sort``) one that asks its first argument, an array or a number, for it. Raises ValueError
    for what is no step: names come from plans, and NumPy has functions that read and write files."""
    if name == "setitem":
        return _assign
    plain = name.removeprefix(".")
    if plain not in STEPS | WRITERS and name not in _CHECKS and not _is_universal(plain):
        raise ValueError(f"numpy.{name} is no step of a graph")
    if name.startswith("."):
        return lambda owner, *args, **kwargs: getattr(owner, plain)(*args, **kwargs)
    found: Told = functools.reduce(getattr, name.split("."), sys.modules["numpy"])
    return cast(Callable[..., Told], found)


def _is_universal(name: str) -> bool:
    """Whether it is a universal function, or one of the methods of such."""
    owner, _, method = name.partition(".")
    return type(getattr(sys.modules["numpy"], owner, None)).__name__ == "ufunc" and method in (
        "",
        "reduce",
        "accumulate",
        "at",
        "outer",
        "reduceat",
    )


def _assign(array: Told, key: Told, value: Told) -> None:
    array[key] = value


def run(name: str, arrays: Sequence[torch.Tensor], told: str, sizes: Sequence[int], results: str) -> list[torch.Tensor]:
    """What the operator does."""
    np: Told = sys.modules["numpy"]
    given = [each.detach().resolve_conj().resolve_neg().numpy() if each.is_complex() else each.detach().numpy() for each in arrays]
    args, kwargs = decoded(read(told), given)
    function = function_of(name.lstrip("!?"))
    with np.errstate(all="ignore"):
        if name.startswith("?"):
            made: Told = passes(function_of(name[1:]), args, kwargs)
        elif name.startswith("!"):
            made = args[0].copy("K")
            function(made, *args[1:], **kwargs)
        else:
            made = function(*args, **kwargs)
    found = [np.asarray(each, order="C") for each in (made if isinstance(made, (tuple, list)) else [made])]
    found = [each.copy() if any(np.may_share_memory(each, a) for a in given) or not each.flags.writeable else each for each in found]
    wanted = list(expected(sizes, results))
    if [(each.dtype.name, each.shape) for each in found] != wanted:
        raise RuntimeError(f"numpy.{name} gave {[(each.dtype.name, each.shape) for each in found]} where {wanted} was known")
    return [torch.from_numpy(each) for each in found]


def passes(check: Callable[..., None], args: Sequence[Told], kwargs: dict[str, Told]) -> Told:
    """Whether a check of NumPy's does."""
    try:
        check(*args, **kwargs)
    except AssertionError:
        return sys.modules["numpy"].False_
    return sys.modules["numpy"].True_


def empty(name: str, arrays: Sequence[torch.Tensor], told: str, sizes: Sequence[int], results: str) -> list[torch.Tensor]:
    """What the results look like: dense, in the order of their dimensions."""
    return [torch.empty(shape, dtype=getattr(torch, dtype), device=arrays[0].device) for dtype, shape in expected(sizes, results)]


def expected(sizes: Sequence[int], results: str) -> Told:
    """Of each result the dtype and the sizes; ``results``: dtypes and numbers of dimensions (``float64:2 int64:1``)."""
    at = 0
    for each in results.split():
        dtype, dims = each.split(":")
        yield dtype, tuple(sizes[at : at + int(dims)])
        at += int(dims)


def decoded(told: Told, given: Sequence[Told]) -> Told:
    """What ``encoded`` has written, with the arrays in their places."""
    if isinstance(told, list):
        return [decoded(each, given) for each in told]
    if not isinstance(told, dict):
        return told
    kind, value = next(iter(told.items()))
    return DECODING[kind](value, given)


def _dtype(name: str) -> Told:
    return sys.modules["numpy"].dtype(name)


DECODING: dict[str, Callable[[Told, Sequence[Told]], Told]] = {
    "array": lambda value, given: given[value],
    "number": lambda value, given: given[value][()],
    "tuple": lambda value, given: tuple(decoded(value, given)),
    "named": lambda value, given: {name: decoded(each, given) for name, each in value.items()},
    "slice": lambda value, given: slice(*decoded(value, given)),
    "dtype": lambda value, given: _dtype(value),
    "float": lambda value, given: float(value),
    "scalar": lambda value, given: _dtype(value[0]).type(value[1]),
    "complex": lambda value, given: complex(*value),
    "ellipsis": lambda value, given: ...,
}
"""What has no form of its own in JSON: its kind, and how it is read."""


def encoded(value: object) -> Told:
    """A value of the program as JSON has it. Raises NotImplementedError for what has no form there."""
    np = sys.modules["numpy"]
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return value
    if type(value) is float:
        return {"float": str(value)}
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        item = value.item()
        return {"scalar": [value.dtype.name, item if math.isfinite(item) else str(item)]}
    if type(value) is complex:
        return {"complex": [value.real, value.imag]}
    if value is ...:
        return {"ellipsis": None}
    if isinstance(value, np.dtype) or (type(value) is type and (value in (bool, int, float, complex) or issubclass(value, np.generic))):
        return {"dtype": np.dtype(value).str}
    raise NotImplementedError


__all__ = ["CHECKS", "STEPS", "Told", "encoded", "operator"]
