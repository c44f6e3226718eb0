"""NumPy's arrays that existed before the call, as inputs of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from opmill_guards.guard import Predicate, TypeIs
from opmill_guards.source import Attr, Item, Pinned, Source

from ..values.arrays import Array, ArrayValue, like_layout, torch_dtype
from ..values.base import MISSING
from ..values.constant import ConstantValue
from ..values.functions import BuiltinValue
from ..values.known_arrays import KINDS, KnownArray
from ..values.tensor import TensorValue
from .layouts import Laid, Number, side_by_side

if TYPE_CHECKING:
    from ..interpretation.machine import Interpreter
    from ..values.base import Value


def array_of_before(vm: Interpreter, obj: Any, source: Any) -> ArrayValue | KnownArray | None:
    """What stands for an array that existed before the call: an input of the graph by its memory. One that the capture itself computed is
    copied by each call. None where tensors do not hold what it holds, or as it does."""
    dtype = torch_dtype(obj.dtype)
    if source is None and obj.dtype.kind in KINDS:
        return KnownArray(obj)
    if source is None and dtype is not None:
        held = torch.from_numpy(obj.copy(order="K"))
        made: Any = vm.wrap(held, Pinned(held, "array")).method(vm, "clone", [], {})
        return ArrayValue(made, obj, of=None if obj.base is None else MISSING)
    plain = all(stride >= 0 for stride in obj.strides) and obj.flags.writeable and obj.flags.aligned
    if dtype is None or not plain or any(stride % obj.itemsize for stride in obj.strides):
        return None
    given = torch.from_numpy(obj)
    limits = vm.varying.dimensions(source, given) if side_by_side(obj) and type(source) is not Pinned else {}
    sizes = tuple(None if d in limits else n for d, n in enumerate(obj.shape))
    laid = Laid(obj.dtype, sizes, None if limits else obj.strides)
    vm.guard(TypeIs(source, type(obj)))
    vm.guard(Predicate(source, laid, str(laid)))
    inner = TensorValue(vm.recorder.fake_of(given, source, limits, frozenset(), size_of_array), None, torch.Tensor, given, source)
    inner.of_array = True
    vm.recorder.by_fake[id(inner.fake)] = inner
    vm.recorder.inference.note(inner.fake, given=True)
    vm.recorder.own_symbols(inner)
    return ArrayValue(inner, like_layout(obj.dtype, obj.shape, obj.strides), obj, source)


def number_of_before(vm: Interpreter, obj: Array, source: Source | None) -> Value | None:
    """What stands for a number of NumPy's that existed before the call: it is known by its value, and one that was seen to change is an
    input of the graph. None for what is known by identity: texts, dates, NaNs, and numbers that tensors do not hold."""
    dtype = torch_dtype(obj.dtype) if obj.dtype.kind in "iuf" else None
    if source is None or type(source) is Pinned or dtype is None or obj != obj:
        return None
    vm.guard(TypeIs(source, type(obj)))
    if not (vm.varying.is_float(source) or source in vm.varying.opaque):
        vm.guard(Predicate(source, Number(type(obj), obj.tobytes(), dtype.is_floating_point), f"== {obj!r}"))
        return ConstantValue(obj, source) if isinstance(obj, float) else BuiltinValue(obj, source)
    given = torch.from_numpy(obj[...])
    inner = TensorValue(vm.recorder.fake_of(given, source, {}, frozenset(), size_of_array), None, torch.Tensor, given, source)
    inner.of_array = inner.of_number = True
    vm.recorder.by_fake[id(inner.fake)] = inner
    return ArrayValue(inner, type(obj)(1), obj, source)


def size_of_array(source: Source, dim: int) -> Source:
    """The source of an array's size along a dimension."""
    return Item(Attr(source, "shape"), dim)


__all__ = ["array_of_before", "number_of_before"]
