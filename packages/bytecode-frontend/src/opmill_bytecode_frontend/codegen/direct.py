"""Functions that are nothing but a graph: their guards hand its inputs to it and make its outputs into the result, with no Python
between."""

from __future__ import annotations

import collections
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable

from opmill_guards.direct import Result
from opmill_guards.source import Pinned
from opmill_guards.weak import may_die

from ..values.base import Lazy, find_in_mro
from ..values.constant import ConstantValue
from ..values.mapping import DictValue
from ..values.objects import ObjectValue, builtin_base
from ..values.sequence import ListValue, TupleValue
from ..values.tensor import TensorValue
from .rebuild import Rebuilder
from .sources import is_single

if TYPE_CHECKING:
    from opmill_guards._native import DirectCall

#: Classes whose instances are made natively, by the class of C that they come from.
MADE = (object, dict, collections.OrderedDict)
#: Types of keys that are hashed and compared without Python.
KEYS = (str, int, bool, type(None))


class NeedsPython(Exception):
    """Part of a result is only made by statements."""


class Parts:
    """Describes a tracked result; ``inputs``: sources of what the guards load, and which of the loaded values it is."""

    def __init__(self, r: Rebuilder, inputs: Mapping[object, int]) -> None:
        self.r, self.inputs, self.result = r, inputs, Result()
        self._known: dict[int, int | None] = {}

    def part(self, value: object) -> int:
        """The number of the part that stands for ``value``. NeedsPython where there is none."""
        if id(value) in self._known:
            known = self._known[id(value)]
            if known is None:
                raise NeedsPython  # it contains itself
            return known
        self._known[id(value)] = None
        made = self._known[id(value)] = self._describe(value)
        return made

    def _describe(self, value: object) -> int:
        source = getattr(value, "source", None)
        if type(source) is Pinned:
            if source.mortal and may_die(source.object):
                raise NeedsPython
            return self.result.constant(source.object)
        if source is not None and not (type(value) is ConstantValue and is_single(value.real())):
            if source not in self.inputs:
                raise NeedsPython
            return self.result.input(self.inputs[source])
        describe = KINDS.get(type(value))
        if describe is None:
            raise NeedsPython
        return describe(self, value)

    def lazy(self, value: Lazy) -> int:
        if value.source is not None and (type(value.source) is not Pinned or (value.source.mortal and may_die(value.obj))):
            raise NeedsPython
        return self.result.constant(value.obj)

    def constant(self, value: ConstantValue) -> int:
        return self.result.constant(value.real())

    def tensor(self, value: TensorValue) -> int:
        for index, output in enumerate(self.r.outputs):
            if output is value and self.r.known(value) == f"_g[{index}]":
                return self.result.output(index)
        raise NeedsPython

    def tuple_of(self, value: TupleValue) -> int:
        if value.cls is not tuple:
            raise NeedsPython
        return self.result.tuple_of([self.part(item) for item in value.items])

    def list_of(self, value: ListValue) -> int:
        if value.cls is not list:
            raise NeedsPython
        return self.result.list_of([self.part(item) for item in value.items])

    def dict_of(self, value: DictValue) -> int:
        if value.cls is not dict:
            raise NeedsPython
        return self.result.dict_of(self._items(value))

    def instance(self, value: ObjectValue) -> int:
        base, storage = builtin_base(value.cls), value.storage
        own = type(find_in_mro(value.cls.__mro__, "__getattribute__")[1]) is types.FunctionType
        if self.r.vm.is_made(value.cls) or base not in MADE or own or value.slots or not value.has_dict():
            raise NeedsPython
        if (storage is None) is not (base is object) or not (storage is None or isinstance(storage, DictValue)):
            raise NeedsPython
        stored = {} if storage is None else self._items(storage)
        return self.result.instance(value.cls, base, stored, self._items(value.attrs))

    def _items(self, value: DictValue) -> dict[Any, int]:
        if value.default is not None or value.read_only or value.extra:
            raise NeedsPython
        items = {}
        for key, item in value.items.values():
            if type(key) is not ConstantValue or type(key.real()) not in KEYS:
                raise NeedsPython
            items[key.real()] = self.part(item)
        return items


KINDS: dict[type, Callable[..., int]] = {
    Lazy: Parts.lazy,
    ConstantValue: Parts.constant,
    TensorValue: Parts.tensor,
    TupleValue: Parts.tuple_of,
    ListValue: Parts.list_of,
    DictValue: Parts.dict_of,
    ObjectValue: Parts.instance,
}


def direct_call(
    r: Rebuilder, result: object, inputs: list[object], graph: Callable[..., object], failed: Callable[..., object]
) -> DirectCall | None:
    """The ``DirectCall`` of a function whose result is ``result``; None where the result takes Python to make. ``inputs``: the sources that
    the guards load, all of them inputs of ``graph``. What a backend gives may have a property ``direct``: a callable that does the same,
    and what is called with the exception and the inputs where that one raises."""
    parts = Parts(r, {source: index for index, source in enumerate(inputs)})
    try:
        parts.part(result)
    except NeedsPython:
        return None
    call, recover = getattr(graph, "direct", None) or (graph, None)
    return parts.result.call(call, failed, recover)


__all__ = ["direct_call"]
