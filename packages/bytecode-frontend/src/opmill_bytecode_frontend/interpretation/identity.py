"""Whether objects that were there before the call are known by identity."""

from __future__ import annotations

import collections
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from opmill_guards.source import ContextValue, Local, Pinned, Referent, Source
from opmill_guards.storage import is_of

from ..values.base import Machine, Value
from ..values.constant import ConstantValue, is_nan
from ..values.floating import FloatNumber

if TYPE_CHECKING:
    from .machine import Interpreter


TABLES: tuple[Any, ...] = (dict, collections.OrderedDict)
VIEWS = tuple(type(look(kind())) for kind in TABLES for look in (kind.keys, kind.values, kind.items))
"""The classes of views of dictionaries."""
CONTAINERS = (list, dict, types.MappingProxyType, types.SimpleNamespace, types.CellType, *VIEWS)
"""To most of which no weak reference can be had."""
BY_VALUE = (int, str, bytes, float, complex)
"""Of equal objects of these classes there may be several."""


def root_is_pinned(source: Source) -> bool:
    """Whether what is found there is held by what is pinned: not on the way through a weak reference or a context."""
    return type(source.root) is Pinned and not any(type(each) in (Referent, ContextValue) for each in way_to(source))


def is_held(vm: Interpreter, source: Source, obj: object) -> bool:
    """Whether an object found there is known by identity: no argument leads there, no other was found there, or on the way, before, and
    whoever knows it need not keep it alive."""
    if type(source) is Pinned:
        return True
    kept = is_of(obj, CONTAINERS) and not type(obj).__weakrefoffset__
    return root_is_pinned(source) and not kept and vm.varying.rebound.isdisjoint(way_to(source))


def way_to(source: Source) -> Iterator[Source]:
    """The source and those that it is found through, but for the root."""
    while not isinstance(source, (Pinned, Local)):
        yield source
        source = source.base


def same_constants(vm: Interpreter, left: ConstantValue, right: ConstantValue) -> bool:
    """Whether two constants are one object. Those of before the call are known by value: where that leaves it open, the very object is
    assumed. Raises Unsupported (FE028) for equal ones that are two."""
    a, b = left.value, right.value
    if type(a) is not type(b) or not is_by_value(a) or not (a == b or (is_nan(left) and is_nan(right))):
        return a is b
    if a is not b and a == b and not (left.source is None and right.source is None):
        vm.unsupported("FE028", f"identity of equal {type(a).__name__} objects", "only their values are known", "compare with ==")
    for value in (left, right):
        vm.guard_object(value)
    return a is b


def is_by_value(obj: object) -> bool:
    """Whether a constant is known by its value: numbers of NumPy's that are Python's, too, among them."""
    return type(obj) in BY_VALUE or (isinstance(obj, float) and type(obj).__module__ == "numpy")


def refuse_nan(vm: Machine, left: Value, right: Value) -> None:
    """Containers take a NaN for the same as itself. A float whose value is not assumed is assumed to be none where that may matter. Raises
    Unsupported (FE028) where it is one."""
    for value, other in ((left, right), (right, left)):
        may_be = isinstance(other, FloatNumber) or is_nan(other)
        if isinstance(value, FloatNumber) and may_be and not value.decide("__eq__", value):
            vm.unsupported("FE028", "identity of two NaNs", "only their values are known", "use math.isnan")


def same_numbers(vm: Interpreter, left: Value, right: Value) -> bool:
    """As ``same_constants``, where the value of one is not assumed."""
    refuse_nan(vm, left, right)
    if left.python_type() is not right.python_type() or not vm.truth(vm.compare("==", left, right)):
        return False
    if left.python_type() is int and all(vm.truth(vm.compare(op, left, ConstantValue(end))) for op, end in ((">=", -5), ("<=", 256))):
        return True  # of which Python has one object each
    if left.python_type() in BY_VALUE:
        vm.unsupported(
            "FE028", f"identity of equal {left.python_type().__name__} objects", "only their values are known", "compare with =="
        )
    return True


__all__ = ["is_held", "refuse_nan", "root_is_pinned", "same_constants", "same_numbers"]
