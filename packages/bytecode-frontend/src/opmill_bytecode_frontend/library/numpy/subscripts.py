"""Subscripts of arrays, read and assigned to."""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any, SupportsInt, cast

import torch

from opmill_fake_tensors.symbols.asking import known_from_data

from ...values.arrays import ArrayValue, known_number, sizes_now
from ...values.base import Lazy, Value
from ...values.constant import ConstantValue
from ...values.number import SymbolicNumber
from ...values.sequence import ListValue, SequenceValue, SliceValue, TupleValue
from ...values.tensor import TensorValue
from .asking import ask, asked, like, refuse
from .data_sizes import demand_items, positions
from .results import demand_writable, finished, operand
from .sizes import assume, changing, settled
from .steps import changed

if TYPE_CHECKING:
    from ...interpretation.machine import Interpreter

Parts = list[Any]
"""What stands between the commas of a subscript."""


def subscript(vm: Interpreter, obj: object, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``array[key]``."""
    owner, key = args[0], args[1]
    if not isinstance(owner, ArrayValue):
        return refuse(vm, "subscript", "it is of no array of the graph")
    parts = [vm.wrap(p.obj, p.source) if type(p) is Lazy else p for p in (key.items if type(key) is TupleValue else [key])]
    if any(isinstance(n, ArrayValue) for p in parts if isinstance(p, SliceValue) for n in p.parts):
        parts = [SliceValue(*[end_of_slice(vm, n) for n in p.parts]) if isinstance(p, SliceValue) else p for p in parts]
        key = TupleValue(parts)
        args = [owner, key, *args[2:]]
    backwards = any(isinstance(p, SliceValue) and negative(vm, p) for p in parts)
    if any(map(is_mask, parts)) and (len(args) == 2 or takes_items(vm, owner, parts, args)):
        ask(vm, obj if len(args) == 2 else operator.getitem, "subscript", args[:2], kwargs)
        parts = unmasked(vm, owner, parts)
        key = TupleValue(parts)
        args = [owner, key, *args[2:]]
    several = sum(map(is_positions, parts))
    if len(args) == 3:
        assign_items(vm, owner, parts, args, backwards)
        return ConstantValue(None)
    want = ask(vm, obj, "subscript", args, kwargs)
    demand_items(vm, operator.getitem, "subscript", args, kwargs)
    inner: Value = owner.inner
    if several:
        key = beside_each_other(vm, parts, backwards)
    elif backwards:
        inner, key = forwards(vm, owner.inner, parts)
    found = inner.method(vm, "__getitem__", [index(vm, key)], {})
    made = finished(vm, "subscript", want, found, [owner])
    return settled(vm, made, lambda sizes: asked(vm, obj, "subscript", args, kwargs, False, sizes), changing(vm, args))


def end_of_slice(vm: Interpreter, part: Value) -> Value:
    """Where a slice begins or ends; a number of an array's must be the same at each call."""
    if not isinstance(part, ArrayValue):
        return part
    found = known_number(vm, part)
    if type(found) is not int:
        return refuse(vm, "subscript", "where a slice begins or ends depends on data")
    return ConstantValue(found)


def is_mask(part: Value) -> bool:
    """Whether a part of a subscript is an array of truths."""
    return isinstance(part, ArrayValue) and part.like.dtype.kind == "b" and not part.is_number and bool(part.like.ndim)


def unmasked(vm: Interpreter, owner: ArrayValue, parts: Parts) -> Parts:
    """A subscript with the positions where its masks are true."""
    found: Parts = []
    if any(isinstance(p, ConstantValue) and (p.value is None or p.value is ...) for p in parts):
        refuse(vm, "subscript", "a mask is beside an ellipsis or a new dimension")
    for part in parts:
        if not is_mask(part):
            found.append(part)
            continue
        for n, m in zip(owner.inner.fake.shape[len(found) :], part.inner.fake.shape):
            if n is not m and (known_from_data(n) or known_from_data(m)) and str(n) != str(m):
                refuse(vm, "subscript", "only data tell how large what a mask takes of is")
            if not known_from_data(n) and not known_from_data(m) and n != m:
                refuse(vm, "subscript", "the mask does not fit")
        found += positions(vm, part)
    return found


def takes_items(vm: Interpreter, owner: ArrayValue, parts: Parts, args: list[Value]) -> bool:
    """Whether items that a mask takes are given values one by one."""
    value = args[2]
    if not isinstance(value, ArrayValue) or value.is_number:
        return False
    rest = owner.like.ndim - sum(p.like.ndim if is_mask(p) else 1 for p in parts)
    return len(parts) > 1 or (value.like.ndim > rest and value.like.shape[0] != 1)


def is_positions(part: Value) -> bool:
    """Whether a part of a subscript is a list or an array."""
    return isinstance(part, (ListValue, ArrayValue))


def beside_each_other(vm: Interpreter, parts: Parts, backwards: bool) -> Value:
    """A subscript with computed positions, in which NumPy takes each number for positions, too; a single one of them stays."""
    if backwards:
        refuse(vm, "subscript", "it mixes computed positions with others")
    if len(parts) == 1:
        return cast(Value, parts[0])
    found: Parts = []
    for part in parts:
        if isinstance(part, SymbolicNumber) or (isinstance(part, ArrayValue) and part.like.ndim == 0):
            refuse(vm, "subscript", "it mixes computed positions with others")
        if isinstance(part, ListValue) and any(isinstance(p, SequenceValue) for p in part.items):
            part = vm.call_builtin(sys.modules["numpy"].asarray, [part], {})
        number = isinstance(part, ConstantValue) and part.value is not None and part.value is not ...
        found.append(ListValue([position(vm, part)]) if number else part)
    return TupleValue(found)


def assign_items(vm: Interpreter, owner: ArrayValue, parts: Parts, args: list[Value], backwards: bool) -> None:
    """``array[parts] = value``. ``args``: array, subscript, value. ``backwards``: whether positions go backwards, which torch refuses."""
    ask(vm, assign, "assignment", args, {})
    demand_writable(vm, owner)
    if backwards:
        return changed(vm, "setitem", args, {}, "the positions go backwards")
    value = operand_like(vm, args[2], owner.inner.fake.dtype)
    if any(isinstance(p, ArrayValue) and p.like.dtype.kind == "b" for p in parts):
        where_masked(vm, owner, parts, value)
        return
    if any(map(is_positions, parts)):
        if not (all(n == 1 for n in sizes_now(value.fake.shape)) or once_each(vm, parts)):
            return changed(vm, "setitem", args, {}, "a position may be there twice, and the order decides")
        key = beside_each_other(vm, parts, backwards)
        owner.inner.method(vm, "__setitem__", [index(vm, key), value], {})
        return
    target = cast(TensorValue, owner.inner.method(vm, "__getitem__", [index(vm, args[1])], {}))
    while value.fake.dim() > target.fake.dim() and value.fake.shape[0] == 1:
        value = squeezed(vm, value)
    target.method(vm, "copy_", [value], {})


def squeezed(vm: Interpreter, value: TensorValue) -> TensorValue:
    """Without its first dimension, of one item."""
    return cast(TensorValue, value.method(vm, "squeeze", [ConstantValue(0)], {}))


def where_masked(vm: Interpreter, owner: ArrayValue, parts: Parts, value: TensorValue) -> None:
    """``owner[mask] = value``, where each item that the mask takes is given the same."""
    mask = parts[0]
    rest = owner.like.ndim - mask.like.ndim if len(parts) == 1 and mask.like.ndim else -1
    if rest < 0 or (value.fake.dim() > rest and value.fake.shape[0] != 1):
        refuse(vm, "assignment", "which items it takes depends on data")
    while value.fake.dim() > rest and value.fake.dim():
        value = squeezed(vm, value)
    taken: Value = mask.inner
    for _ in range(rest):
        taken = taken.method(vm, "unsqueeze", [ConstantValue(-1)], {})
    owner.inner.method(vm, "copy_", [vm.recorder.call_function(vm, torch.where, [taken, value, owner.inner], {})], {})


def once_each(vm: Interpreter, parts: Parts) -> bool:
    """Whether no position is there twice: they are numbers of the program, or where a mask is true."""
    if any(isinstance(p, ArrayValue) and p.once for p in parts):
        return True
    given = [like(vm, p) for p in parts if is_positions(p)]
    known = [g for g, p in zip(given, [p for p in parts if is_positions(p)]) if isinstance(p, ListValue)]
    if len(given) != 1 or not known or any(type(n) is not int for n in known[0]):
        return False
    return len(set(known[0])) == len(known[0]) and (min(known[0]) >= 0 or max(known[0]) < 0)


def assign(owner: Any, key: object, value: object) -> None:
    """An assignment to a copy: what it raises is asked for."""
    owner.copy()[key] = value


def negative(vm: Interpreter, part: SliceValue) -> bool:
    """Whether a slice goes backwards."""
    assume(vm, changing(vm, [part.parts[2]]))
    step = like(vm, part.parts[2])
    return step is not None and step < 0


def forwards(vm: Interpreter, inner: TensorValue, parts: Parts) -> tuple[Value, Value]:
    """A tensor flipped where slices go backwards, and the subscript of it that shows the same. Dimensions are counted from the front."""
    plain = [p.value if isinstance(p, ConstantValue) else p for p in parts]
    if any(not isinstance(p, SliceValue) and p is not None and p is not ... and type(p) is not int for p in plain):
        refuse(vm, "subscript", "slices go backwards beside other parts")
    rest = inner.fake.dim() - sum(p is not None and p is not ... for p in plain)
    dims: list[int] = []
    new: Parts = []
    dim = -1
    for part, known in zip(parts, plain):
        dim += rest if known is ... else known is not None
        if not isinstance(part, SliceValue) or not negative(vm, part):
            new.append(part)
            continue
        assume(vm, changing(vm, [part]))
        count = int(inner.fake.shape[dim])
        chosen = range(*like(vm, part).indices(count))
        dims.append(dim)
        first = count - 1 - chosen.start if len(chosen) else 0
        end = first + (len(chosen) - 1) * -chosen.step + 1 if len(chosen) else 0
        new.append(SliceValue(ConstantValue(first), ConstantValue(end), ConstantValue(-chosen.step)))
    flipped = vm.recorder.call_function(vm, torch.flip, [inner, TupleValue([ConstantValue(d) for d in dims])], {})
    return flipped, TupleValue(new)


def index(vm: Interpreter, key: Value | Lazy) -> Value:
    """A subscript for a tensor: positions of other dtypes than NumPy's own are refused."""
    if type(key) is Lazy:
        key = vm.wrap(key.obj, key.source)
    if isinstance(key, ArrayValue):
        if key.like.dtype.kind not in "iu":
            refuse(vm, "subscript", "which items it takes depends on data")
        return key.inner.method(vm, "to", [ConstantValue(torch.int64)], {})
    if isinstance(key, TupleValue):
        return TupleValue([index(vm, p) for p in key.items])
    if isinstance(key, ListValue):
        if not all(type(getattr(p, "value", None)) is int for p in key.items):
            refuse(vm, "subscript", "which items it takes depends on data")
        return key
    if isinstance(key, SliceValue):
        return SliceValue(*[position(vm, p) for p in key.parts])
    return position(vm, key)


def position(vm: Interpreter, part: Value | Lazy) -> Value:
    """An index of one axis as a plain int, or as it is where it depends on sizes."""
    return part if isinstance(part, SymbolicNumber) else ConstantValue(plain_int(like(vm, part)))


def plain_int(part: object) -> object:
    """A part of a subscript as a Python int, if it is a number."""
    return int(part) if isinstance(part, SupportsInt) and not isinstance(part, bool) else part


def operand_like(vm: Interpreter, value: Value, dtype: torch.dtype) -> TensorValue:
    """The value of an assignment as a tensor of ``dtype``; refuses what NumPy would warn about."""
    if isinstance(value, (ListValue, TupleValue)):
        value = vm.call_builtin(sys.modules["numpy"].asarray, [value], {})
    if isinstance(value, ArrayValue) and value.inner.fake.is_complex() and not dtype.is_complex:
        refuse(vm, "assignment", "it drops imaginary parts, and warns")
    if not isinstance(value, ArrayValue) and hasattr(like(vm, value), "dtype"):
        refuse(vm, "assignment", "it is given an array of before the call")
    return cast(TensorValue, operand(vm, value, dtype))


__all__ = ["index", "operand_like", "subscript"]
