"""Results and operands: the tensors that a program of torch takes and gives, in NumPy's dtypes and layouts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

import torch

from ...graph.versions import memory
from ...values.arrays import ArrayValue, is_symbolic, sizes_now, torch_dtype
from ...values.base import MISSING, Value
from ...values.constant import ConstantValue
from ...values.number import SymbolicNumber
from ...values.sequence import ListValue, SequenceValue, TupleValue, members
from ...values.tensor import TensorValue
from .asking import like, refuse
from .kernel import Told
from .sizes import assume

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter


def finished(vm: Interpreter, key: str, want: Any, made: Value, sources: list[Value]) -> Value:
    """What NumPy would give: the tensor, in NumPy's layout."""
    np = sys.modules["numpy"]
    if isinstance(want, (list, tuple)) and isinstance(made, SequenceValue) and len(want) == len(made.items):
        items = [finished(vm, key, w, m, sources) for w, m in zip(want, made.values(vm))]
        return ListValue(items) if isinstance(want, list) else TupleValue(items, type(want))
    if (
        not isinstance(want, (np.ndarray, np.generic))
        or not isinstance(made, TensorValue)
        or (isinstance(want, np.ndarray) and type(want) is not np.ndarray)
    ):
        return refuse(vm, key, f"it gives a {type(want).__name__}")
    arrays = list(members(sources, ArrayValue))
    for each in arrays:
        if each.like is want:
            return each
    if torch_dtype(want.dtype) is not made.fake.dtype or sizes_now(made.fake.shape) != want.shape:
        return refuse(vm, key, f"torch gives {made.fake.dtype}{list(made.fake.shape)}, and NumPy {want.dtype}{list(want.shape)}")
    made = unmarked(vm, made)
    shown = next(
        (a for a in arrays if isinstance(want, np.ndarray) and isinstance(a.like, np.ndarray) and np.may_share_memory(want, a.like)), None
    )
    shares = any(memory(a.inner.fake) == memory(made.fake) for a in arrays)
    if shown is not None and shares and shown.stands_for is None and same_strides(made, want):
        return ArrayValue(made, want, shows=None if want.flags.writeable else shows(shown, want), of=shown)
    if shown is not None and want.size:
        base = shown.stands_for or (shown.inner, shown.inner.fake._version)
        kept = cast(TensorValue, made.method(vm, "clone", [], {})) if shares else made
        assume(vm, [shown, ArrayValue(kept, want)])
        return ArrayValue(kept, want, stands_for=base, shows=shows(shown, want), of=shown)
    return ArrayValue(laid_out(vm, key, made, want, shares), want, of=None if getattr(want, "base", None) is None else MISSING)


def shows(shown: ArrayValue, want: Told) -> tuple[ArrayValue, int]:
    """Of a view of NumPy's: the array with the memory, and where in it the view's first item lies."""
    base, before = shown.shows or (shown, 0)
    return base, before + want.__array_interface__["data"][0] - shown.like.__array_interface__["data"][0]


def unmarked(vm: Interpreter, made: TensorValue) -> TensorValue:
    """A copy of what torch only marks as conjugated or negated, as some of its Fourier transforms do: arrays have no such marks."""
    for mark, resolve in ((made.fake.is_conj(), "resolve_conj"), (made.fake.is_neg(), "resolve_neg")):
        made = cast(TensorValue, made.method(vm, resolve, [], {})) if mark else made
    return made


def same_strides(made: TensorValue, want: Any) -> bool:
    """Whether the items lie as NumPy's do: strides of dimensions of one item say nothing."""
    found = [s * want.itemsize for s in sizes_now(made.fake.stride())]
    return want.size == 0 or all(n == 1 or s == t for n, s, t in zip(want.shape, found, want.strides))


def laid_out(vm: Interpreter, key: str, made: TensorValue, want: Any, shares: bool) -> Any:
    """The tensor with NumPy's strides, in memory of its own."""
    strides = [s // want.itemsize for s in want.strides]
    if same_strides(made, want):
        return made.method(vm, "clone", [], {}) if shares else made
    order = sorted(range(want.ndim), key=lambda d: (-strides[d], d))
    back = [order.index(d) for d in range(want.ndim)]
    count = 1
    for d in reversed(order):
        if want.shape[d] != 1 and strides[d] != count:
            if strides[d] < count or is_symbolic(made.fake):
                refuse(vm, key, "its result has gaps in its memory")
            return spread(vm, made, strides)
        count *= want.shape[d]
    turned = made.method(vm, "permute", [TupleValue([ConstantValue(d) for d in order])], {})
    dense = turned.method(vm, "clone", [], {"memory_format": ConstantValue(torch.contiguous_format)})
    return dense.method(vm, "permute", [TupleValue([ConstantValue(d) for d in back])], {})


def spread(vm: Interpreter, made: TensorValue, strides: list[int]) -> Value:
    """A copy of the tensor whose items lie apart."""
    told: dict[str, Value] = {"dtype": ConstantValue(made.fake.dtype)}
    apart = vm.recorder.call_function(vm, torch.empty_strided, [vm.fresh(tuple(made.fake.shape)), vm.fresh(tuple(strides))], told)
    return apart.method(vm, "copy_", [made], {})


def loop(vm: Interpreter, obj: Any, args: list[Value]) -> tuple[Any, ...]:
    """The dtypes of the operands as NumPy's loop takes them. Python's numbers have none of their own."""
    given: list[object] = []
    for arg in args:
        found = like(vm, arg)
        given.append(type(found) if type(found) in (int, float, complex) else sys.modules["numpy"].asarray(found).dtype)
    resolved: tuple[Any, ...] = obj.resolve_dtypes((*given, *[None] * obj.nout))
    return resolved[: obj.nin]


def operand(vm: Interpreter, value: Value, dtype: torch.dtype | None) -> Value:
    """A value as a tensor of that type."""
    if isinstance(value, ArrayValue):
        if value.inner.fake.dtype is dtype:
            return value.inner
        return value.inner.method(vm, "to", [ConstantValue(dtype)], {})
    if not isinstance(value, SymbolicNumber) or value.python_type() is not int:
        number = like(vm, value)
        value = ConstantValue(number.item() if hasattr(number, "item") else number)
    return vm.recorder.call_function(vm, torch.full, [TupleValue([]), value], {"dtype": ConstantValue(dtype)})


def is_writable(array: ArrayValue) -> bool:
    """Whether what is written to the tensor of an array is written to the array."""
    return array.stands_for is None and bool(array.like.flags.writeable)


def demand_writable(vm: Interpreter, array: ArrayValue) -> None:
    """Ends the graph at an assignment to another one."""
    if not is_writable(array):
        refuse(vm, "assignment", "the array is a view that tensors have none of")


def write(vm: Interpreter, out: ArrayValue, value: Value) -> None:
    """Writes a value into an array of the graph."""
    demand_writable(vm, out)
    out.inner.method(vm, "copy_", [value], {})


__all__ = ["demand_writable", "finished", "is_writable", "loop", "operand", "write"]
