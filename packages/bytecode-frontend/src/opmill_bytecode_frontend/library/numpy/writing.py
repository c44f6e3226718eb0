"""Functions and methods of NumPy that write to the array that they are given."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch

from ...values.arrays import ArrayValue, sizes_now
from ...values.base import Value
from ...values.constant import ConstantValue, is_none
from ...values.sequence import ListValue, SliceValue, TupleValue
from ...values.tensor import TensorValue
from .asking import NO_PROGRAM, ask, refuse
from .kernel import Told
from .results import is_writable, loop, operand, write
from .steps import changed
from .subscripts import index, operand_like, subscript

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

NONE = ConstantValue(None)
Arguments = dict[str, Value]


def of_copy(function: Callable[..., object]) -> Callable[..., object]:
    """What it does, with a copy."""
    return lambda owner, *given, **named: function(owner.copy(), *given, **named)


def written_to(vm: Interpreter, obj: Any, key: str, args: list[Value], kwargs: Arguments) -> Value:
    """What such a function gives."""
    names, rule = WRITING[key]
    owner, given = args[0], {**dict(zip(names, args[1:])), **kwargs}
    if not isinstance(owner, ArrayValue) or len(args) - 1 > len(names) or not given.keys() <= set(names):
        return refuse(vm, key, NO_PROGRAM)
    ask(vm, of_copy(obj), key, args, kwargs)
    if not rule(vm, owner, given):
        changed(vm, key, args, kwargs, NO_PROGRAM)
    return NONE


def value_for(vm: Interpreter, owner: ArrayValue, value: Value) -> TensorValue:
    """A value as it is written into an array: a tensor of its type."""
    return operand_like(vm, value, owner.inner.fake.dtype)


def add_at(vm: Interpreter, obj: Any, args: list[Value]) -> Value:
    """``numpy.add.at`` and the like: each position as often as it is named."""
    key, owner = f"{obj.__self__.__name__}.at", args[0]
    if not isinstance(owner, ArrayValue) or not is_writable(owner):
        return refuse(vm, key, NO_PROGRAM)
    ask(vm, of_copy(obj), key, args, {})
    if not added_at(vm, obj, owner, args):
        changed(vm, key, args, {}, NO_PROGRAM)
    return NONE


def added_at(vm: Interpreter, obj: Told, owner: ArrayValue, args: list[Value]) -> bool:
    """Whether torch has a program for it, which is recorded."""
    name = obj.__self__.__name__
    if len(args) != 3 or name not in ("add", "subtract", "maximum", "minimum"):
        return False
    parts = args[1].items if type(args[1]) is TupleValue else [args[1]]
    taken = loop(vm, obj.__self__, [owner, args[2]])
    if any(isinstance(p, SliceValue) for p in parts) or taken[0] != owner.like.dtype or owner.like.dtype.kind not in "iuf":
        return False
    if name in ("maximum", "minimum") and (owner.like.ndim != 1 or len(parts) != 1 or isinstance(parts[0], ConstantValue)):
        return False
    places = [index(vm, vm.call_builtin(sys.modules["numpy"].asarray, [p], {}) if isinstance(p, ListValue) else p) for p in parts]
    places = [p if isinstance(p, TensorValue) else operand(vm, p, torch.int64) for p in places]
    value: Value = value_for(vm, owner, args[2])
    if name in ("add", "subtract"):
        value = value.method(vm, "neg", [], {}) if name == "subtract" else value
        owner.inner.method(vm, "index_put_", [TupleValue(list(places)), value], {"accumulate": ConstantValue(True)})
        return True
    at = places[0]
    if not isinstance(at, TensorValue) or at.fake.dim() != 1:
        return False
    behind = at.method(vm, "__add__", [vm.fresh(owner.inner.fake.shape[0])], {})
    from_front = vm.recorder.call_function(vm, torch.where, [at.method(vm, "__lt__", [ConstantValue(0)], {}), behind, at], {})
    value = vm.recorder.call_function(vm, torch.broadcast_to, [value, vm.fresh(tuple(at.fake.shape))], {})
    kind = ConstantValue("amax" if name == "maximum" else "amin")
    owner.inner.method(vm, "scatter_reduce_", [ConstantValue(0), from_front, value, kind], {})
    return True


def copyto(vm: Interpreter, dst: ArrayValue, given: Arguments) -> bool:
    """``numpy.copyto()``; False where no rule takes these arguments, as with the others of this file."""
    value: Value = value_for(vm, dst, given["src"])
    where = given.get("where", ConstantValue(True))
    casting = given.get("casting", NONE)
    if not is_none(casting) and not (isinstance(casting, ConstantValue) and casting.value in ("same_kind", "unsafe", "safe", "no")):
        return False
    if isinstance(where, ArrayValue):
        value = vm.recorder.call_function(vm, torch.where, [where.inner, value, dst.inner], {})
    elif not (isinstance(where, ConstantValue) and where.value is True):
        return False
    write(vm, dst, value)
    return True


def place(vm: Interpreter, a: ArrayValue, given: Arguments) -> bool:
    """``numpy.place`` and ``numpy.putmask``, where one value goes to all places."""
    mask, value = given["mask"], value_for(vm, a, given["values"])
    if not isinstance(mask, ArrayValue) or mask.like.dtype.kind != "b" or mask.like.shape != a.like.shape or several(value):
        return False
    if value.fake.dim():
        value = cast(TensorValue, value.method(vm, "reshape", [TupleValue([])], {}))
    write(vm, a, vm.recorder.call_function(vm, torch.where, [mask.inner, value, a.inner], {}))
    return True


def several(value: TensorValue) -> bool:
    """Whether a value has more than one element."""
    return any(n != 1 for n in sizes_now(value.fake.shape))


def fill(vm: Interpreter, a: ArrayValue, given: Arguments) -> bool:
    """``array.fill()``."""
    write(vm, a, value_for(vm, a, given["value"]))
    return True


def put(vm: Interpreter, a: ArrayValue, given: Arguments) -> bool:
    """``array.put()`` of one axis."""
    if a.like.ndim != 1 or not is_none(given.get("mode", NONE)):
        return False
    subscript(vm, None, [a, given["ind"], given["v"]], {})
    return True


def fill_diagonal(vm: Interpreter, a: ArrayValue, given: Arguments) -> bool:
    """``numpy.fill_diagonal()`` of a matrix."""
    value = value_for(vm, a, given["val"])
    if a.like.ndim != 2 or value.fake.dim() or "wrap" in given or not is_writable(a):
        return False
    a.inner.method(vm, "diagonal", [], {}).method(vm, "copy_", [value], {})
    return True


def as_step(vm: Interpreter, a: ArrayValue, given: Arguments) -> bool:
    """Of what torch has no program for."""
    return False


WRITING: dict[str, tuple[tuple[str, ...], Callable[[Interpreter, ArrayValue, Arguments], bool]]] = {
    "copyto": (("src", "casting", "where"), copyto),
    "place": (("mask", "values"), place),
    "putmask": (("mask", "values"), place),
    ".fill": (("value",), fill),
    "put": (("ind", "v", "mode"), put),
    ".put": (("ind", "v", "mode"), put),
    "fill_diagonal": (("val", "wrap"), fill_diagonal),
    "put_along_axis": (("indices", "values", "axis"), as_step),
    ".partition": (("kth", "axis", "kind"), as_step),
}
"""The names of their further parameters, and what they do: whether torch has a program for it, which is recorded."""

__all__ = ["WRITING", "add_at", "written_to"]
