"""Functions whose results have as many items as data tell: sizes that the graph finds when it runs."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch

from opmill_fake_tensors.symbols import Relation, index

from ...errors import Unsupported
from ...values.arrays import ArrayValue, like_tensor
from ...values.assertions import demanded, demanded_of, may_demand
from ...values.base import Value
from ...values.constant import ConstantValue, is_none
from ...values.number import SymbolicNumber
from ...values.sequence import SequenceValue, TupleValue
from ...values.tensor import TensorValue
from .asking import answer, refuse
from .sizes import changing, empty_sizes, least, of_data

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


def data_sized(vm: Interpreter, key: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What such a function gives; None for others, and for arguments that its rule does not know."""
    key = key.lstrip(".")
    rule = RULES.get(key)
    arrays = [a for a in args if isinstance(a, ArrayValue)]
    if key == "repeat" and len(arrays) == 2 and arrays[1].like.shape != arrays[0].like.reshape(-1).shape:
        return None
    if rule is None or not arrays or any(a.is_number or a.like.ndim == 0 or a.like.dtype.kind not in "iufb" for a in arrays):
        return None
    function, count = rule
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    if len(arrays) not in count or arrays != args[: len(arrays)] or len(args) > len(names) or not kwargs.keys() <= set(names):
        return None
    if key.endswith("1d") and len({a.inner.fake.dtype for a in arrays}) > 1:
        return None
    if key == "linalg.lstsq" and not alone(args, kwargs):
        return None
    if key in NEGATIVE and not demand_counts(vm, key, args):
        return None
    given = [a.inner if isinstance(a, ArrayValue) else a for a in args]
    kwargs = {k: v.inner if isinstance(v, ArrayValue) else v for k, v in kwargs.items()}
    if key == "bincount":
        return counted(vm, arrays[0], dict(zip(names, given)) | kwargs)
    return as_arrays(vm, vm.call(vm.wrap(function), given, kwargs))


def counted(vm: Interpreter, numbers: ArrayValue, given: dict[str, Value]) -> Value:
    """``numpy.bincount``: of the same numbers, with other weights, it has as many items."""
    version, least = numbers.inner.fake._version, given.get("minlength")
    at = version, least.value if isinstance(least, ConstantValue) else 0
    before = numbers.counted.get(at) if least is None or isinstance(least, ConstantValue) else None
    weights = {"weights": given["weights"]} if not is_none(given.get("weights", ConstantValue(None))) else {}
    if before is not None:
        return as_arrays(vm, vm.call(vm.wrap(counted_again), [numbers.inner, vm.fresh(before)], weights))
    made = as_arrays(vm, vm.call(vm.wrap(bincount), [], given))
    assert isinstance(made, ArrayValue)
    numbers.counted[at] = made.inner.fake.shape[0]
    return made


def alone(args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether no number says what is as good as zero."""
    return all(is_none(each) for each in (*args[2:], *kwargs.values()))


def as_arrays(vm: Interpreter, made: Value, filled: int = 1) -> Value:
    """Tensors of sizes that only data tell as arrays of their layout, of which NumPy is asked with so much in them."""
    if isinstance(made, SequenceValue):
        return TupleValue([as_arrays(vm, each, filled) for each in made.values(vm)])
    assert isinstance(made, TensorValue)
    return ArrayValue(made, like_tensor(made.fake, filled))


def positions(vm: Interpreter, mask: ArrayValue) -> list[Value]:
    """Where a mask is true, dimension by dimension: the same arrays each time that it is asked about."""
    version = mask.inner.fake._version
    if mask.taken is None or mask.taken[0] != version:
        found = cast(TupleValue, as_arrays(vm, vm.call(vm.wrap(nonzero), [mask.inner], {}), 0)).values(vm)
        for each in found:
            cast(ArrayValue, each).once = True
        mask.taken = version, found
    return list(mask.taken[1])


def demand_items(vm: Interpreter, obj: Callable[..., object], key: str, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Where NumPy refuses arrays without items, and only data tell whether there are some: the graph asks when it runs."""
    if not any(map(of_data, changing(vm, [*args, *kwargs.values()]))):
        return
    try:
        answer(vm, obj, key, args, kwargs, False, empty_sizes(vm))
    except Unsupported:
        raise
    except Exception as exc:
        names = {name for value in changing(vm, [*args, *kwargs.values()]) for name in data_of(value) if least(vm, name) == 0}
        if len(names) != 1 or not may_demand(vm) or type(exc) is not getattr(builtins, type(exc).__name__, None):
            refuse(vm, key, f"it raises {type(exc).__name__} where there are no items, and data tell how many there are")
        demanded(vm, Relation(index(names.pop()), "=="), (True, type(exc).__name__, str(exc)))


def data_of(value: SymbolicNumber | ArrayValue) -> set[str]:
    """The sizes that only data tell in an array's shape, or of a number."""
    numbers = value.inner.fake.shape if isinstance(value, ArrayValue) else [value.number]
    return {name for n in numbers if type(n) is not int and not n.node.has_hint() for name in n.node.expr.symbols}


# ---- programs of torch ---------------------------------------------------------------------------------------------------


def nonzero(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The positions, dimension by dimension."""
    if a.dim() == 1:
        return (torch.nonzero(a)[:, 0],)
    return torch.unbind(torch.stack(torch.nonzero(a, as_tuple=True), 1), 1)  # side by side in memory, as NumPy's are


def flatnonzero(a: torch.Tensor) -> torch.Tensor:
    """The positions in the items in a row."""
    return torch.nonzero(a.reshape(-1))[:, 0]


def compress(condition: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """The items in a row where a condition holds."""
    return a.reshape(-1)[flatnonzero(condition)]


def repeat(a: torch.Tensor, repeats: torch.Tensor, axis: int | None = None) -> torch.Tensor:
    """Each item as often as the array says."""
    return torch.repeat_interleave(a.reshape(-1) if axis is None else a, repeats.to(torch.int64), dim=0 if axis is None else axis)


def bincount(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    """How often each number is there, or the sum of its weights."""
    return torch.bincount(x, weights if weights is None else weights.to(torch.float64), minlength)


def counted_again(x: torch.Tensor, length: int, weights: torch.Tensor | None = None) -> torch.Tensor:
    """The same where it is known how many numbers there may be."""
    if weights is None:
        return torch.zeros(length, dtype=torch.int64).index_add_(0, x.to(torch.int64), torch.ones_like(x, dtype=torch.int64))
    return torch.zeros(length, dtype=torch.float64).index_add_(0, x.to(torch.int64), weights.to(torch.float64))


NEGATIVE = {
    "repeat": (1, "repeats may not contain negative values."),
    "bincount": (0, "'list' argument must have no negative elements"),
}
"""Functions that refuse negative counts: which argument has them, and what NumPy says."""


def demand_counts(vm: Interpreter, key: str, args: list[Value]) -> bool:
    """Has the graph ask whether counts are such. False where it cannot."""
    at, text = NEGATIVE[key]
    counts = args[at]
    if not isinstance(counts, ArrayValue) or counts.like.dtype.kind not in "iu" or counts.like.ndim != 1 or not may_demand(vm):
        return False
    fine = vm.recorder.call_function(vm, torch.all, [counts.inner.method(vm, "__ge__", [ConstantValue(0)], {})], {})
    demanded_of(vm, fine, (False, "ValueError", text))
    return True


def first_of_each(ordered: torch.Tensor) -> torch.Tensor:
    """Where another number begins; those that are not numbers are all the same."""
    differs = ordered[1:] != ordered[:-1]
    if ordered.is_floating_point():
        differs = torch.logical_and(differs, torch.logical_not(torch.logical_and(torch.isnan(ordered[1:]), torch.isnan(ordered[:-1]))))
    first = torch.ones(ordered.shape, dtype=torch.bool)
    first[1:] = differs
    return first


def unique(
    ar: torch.Tensor, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Each number once, in order, and what else is asked for."""
    flat = ar.reshape(-1)
    order = torch.argsort(flat, stable=True)
    ordered = flat[order]
    first = first_of_each(ordered)
    starts = torch.nonzero(first)[:, 0]
    found = [ordered[starts]]
    if return_index:
        found.append(order[starts])
    if return_inverse:
        inverse = torch.zeros_like(order)
        inverse[order] = torch.cumsum(first, 0) - 1
        found.append(inverse.reshape(ar.shape))
    if return_counts:
        found.append(torch.diff(starts, append=torch.full((1,), flat.shape[0])))
    return found[0] if len(found) == 1 else tuple(found)


def unique_values(ar: torch.Tensor) -> torch.Tensor:
    """Each number once, in order."""
    ordered = torch.sort(ar.reshape(-1))[0]
    return ordered[torch.nonzero(first_of_each(ordered))[:, 0]]


def intersect1d(ar1: torch.Tensor, ar2: torch.Tensor) -> torch.Tensor:
    """What is in both, once each."""
    found = unique_values(ar1)
    return found[torch.nonzero(torch.isin(found, ar2))[:, 0]]


def setdiff1d(ar1: torch.Tensor, ar2: torch.Tensor) -> torch.Tensor:
    """What is in the first alone, once each."""
    found = unique_values(ar1)
    return found[torch.nonzero(torch.isin(found, ar2, invert=True))[:, 0]]


def setxor1d(ar1: torch.Tensor, ar2: torch.Tensor) -> torch.Tensor:
    """What is in one of them alone, once each."""
    one, other = unique_values(ar1), unique_values(ar2)
    left, right = torch.isin(one, other, invert=True), torch.isin(other, one, invert=True)
    return torch.sort(torch.cat([one[torch.nonzero(left)[:, 0]], other[torch.nonzero(right)[:, 0]]]))[0]


def lstsq(a: torch.Tensor, b: torch.Tensor, rcond: None = None) -> tuple[torch.Tensor, ...]:
    """The solution with the smallest squares, by singular values; what is left, the rank, the values."""
    dtype = torch.float32 if a.dtype == b.dtype == torch.float32 else torch.float64
    a, b = a.to(dtype), b.to(dtype)
    columns = b if b.dim() > 1 else b.unsqueeze(1)
    left, values, right = torch.linalg.svd(a, full_matrices=False)
    kept = values > torch.finfo(a.dtype).eps * max(a.shape[0], a.shape[1]) * torch.amax(values)
    inverse = torch.where(kept, 1 / values, torch.zeros_like(values))
    found = right.mT @ (inverse.unsqueeze(1) * (left.mT @ columns))
    rank = torch.sum(kept)
    rest = torch.sum(torch.square(columns - a @ found), dim=0)
    if a.shape[0] <= a.shape[1]:
        rest = rest[:0]
    else:
        rest = rest[torch.nonzero((rank == a.shape[1]).expand(rest.shape))[:, 0]]  # there are none where the rank is not full
    return (found.contiguous() if b.dim() > 1 else found[:, 0].contiguous()), rest, rank.to(torch.int32), values


ONE, TWO = (1,), (2,)
RULES: dict[str, tuple[Callable[..., object], tuple[int, ...]]] = {
    "nonzero": (nonzero, ONE), "where": (nonzero, ONE), "flatnonzero": (flatnonzero, ONE), "unique": (unique, ONE),
    "unique_values": (unique_values, ONE), "compress": (compress, TWO), "repeat": (repeat, TWO), "bincount": (bincount, (1, 2)),
    "intersect1d": (intersect1d, TWO), "setdiff1d": (setdiff1d, TWO), "setxor1d": (setxor1d, TWO), "linalg.lstsq": (lstsq, TWO),
}  # fmt: skip
"""By their names: the program, and how many arrays it takes, all of one dtype."""


def median(a: torch.Tensor, *, as_dtype: torch.dtype) -> torch.Tensor:
    """The middle of all items; what is no number where there are none."""
    nothing = torch.full((1,), torch.nan, dtype=as_dtype)
    ordered = torch.cat([torch.sort(a.reshape(-1).to(as_dtype)).values, nothing])
    count = torch.full((), a.numel())
    low = ordered[torch.clamp((count - 1) // 2, min=0)]
    found = torch.where(count % 2 == 1, low, (low + ordered[count // 2]) / 2)
    last = ordered[torch.clamp(count - 1, min=0)]
    return torch.where(torch.isnan(last), last, found)


BY_DATA = {"median": median}
"""Programs of functions for arrays whose sizes only data tell, where those for other arrays ask about them."""

__all__ = ["BY_DATA", "data_sized", "demand_items", "positions"]
