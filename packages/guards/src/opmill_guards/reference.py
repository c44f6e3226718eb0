"""Sources and guards in plain Python: the oracle of the native tree, and what explains a failure."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import CellType, MappingProxyType
from typing import Any

from . import source as s
from ._native import instance_dict
from .errors import GuardError
from .guard import Guard
from .kinds import kind_of
from .storage import is_of, keys_of
from .texts import of_error
from .weak import DEAD, living

Locals = Mapping[str, Any]
_ABSENT: Any = object()


class Unreadable(Exception):
    """The source leads nowhere: an attribute, key or position is missing, or the value is not of the kind the path needs."""


def _local(source: s.Local, base: Any, local_values: Locals) -> Any:
    return local_values[source.name]


def _pinned(source: s.Pinned, base: Any, local_values: Locals) -> Any:
    return _living(source.held)


def _living(held: Any) -> Any:
    found = living(held)
    if found is DEAD:
        raise Unreadable("the object has died")
    return found


def _attr(source: s.Attr, base: Any, local_values: Locals) -> Any:
    return getattr(base, source.name)


def _instance_dict(source: s.InstanceDict, base: Any, local_values: Locals) -> Any:
    return type.__dict__["__dict__"].__get__(base) if is_of(base, type) else instance_dict(base)


def _item(source: s.Item, base: Any, local_values: Locals) -> Any:
    key = _living(source.key)
    if is_of(base, dict):  # not by __getitem__: that asks __missing__, which may change the dictionary
        if (found := dict.get(base, key, _ABSENT)) is _ABSENT:
            raise KeyError(key)
        return found
    for builtin in (tuple, list, deque):
        if is_of(base, builtin):
            return builtin.__getitem__(base, key)
    if is_of(base, MappingProxyType):
        return base[key]
    raise Unreadable(f"{source.base} is a {type(base).__qualname__}, not a dict, tuple, list or deque")


def _key_at(source: s.DictKeyAt, base: Any, local_values: Locals) -> Any:
    if not is_of(base, (dict, MappingProxyType)) or source.position < 0:
        raise Unreadable(f"{source.base} is not a dict")
    return keys_of(base)[source.position]


def value_at(table: Any, position: int) -> Any:
    """What a dict, or a proxy of one, has for the key at that position, which is not asked for its hash. IndexError where there is none."""
    kind: Any = next((kind for kind in (OrderedDict, dict) if is_of(table, kind)), type(table))
    return list(itertools.islice(kind.values(table), position, position + 1))[0]  # noqa: RUF015


def _value_at(source: s.DictValueAt, base: Any, local_values: Locals) -> Any:
    if not is_of(base, (dict, MappingProxyType)) or source.position < 0:
        raise Unreadable(f"{source.base} is not a dict")
    return value_at(base, source.position)


def iterated(iterator: Any) -> Any:
    """What an iterator over a list, a tuple, a dict or a view of one goes over. Raises Unreadable for others, and at its end."""
    if type(iterator) in SEQUENCE_ITERATORS:
        of, *at = iterator.__reduce__()[1:]
        if at:
            return of[0]
    elif type(iterator) in TABLE_ITERATORS and (found := gc.get_referents(iterator)):
        return next(each for each in found if is_of(each, dict))
    raise Unreadable("it is no iterator over a container of Python's, or has come to its end")


def ahead(iterator: Any, distance: int) -> Any:
    """The item that it gives next, or that many behind it. Raises Unreadable where there is none."""
    of = iterated(iterator)
    left = iterator.__length_hint__()
    if not 0 <= distance < left:
        raise Unreadable("the iterator has no such item")
    if is_of(of, dict):
        items = _VIEWS[type(iterator)](of)
        return next(itertools.islice(items, len(items) - left + distance, None))
    at = iterator.__reduce__()[2]
    kind: Any = next((kind for kind in (list, tuple, deque) if is_of(of, kind)), type(of))
    return kind.__getitem__(of, at + distance)


def _ahead(source: s.Ahead, base: Any, local_values: Locals) -> Any:
    return ahead(base, source.distance)


def _iterated(source: s.Iterated, base: Any, local_values: Locals) -> Any:
    return iterated(base)


def inside(iterator: Any, position: int) -> Any:
    """What an ``enumerate``, a ``zip`` or a ``map`` was made of. Raises Unreadable for others."""
    if type(iterator) not in COMPOSED:
        raise Unreadable("it is no enumerate, zip or map")
    parts = iterator.__reduce__()[1]
    if not 0 <= position < len(parts):
        raise Unreadable("it was made of less")
    return parts[position]


def _inside(source: s.Inside, base: Any, local_values: Locals) -> Any:
    return inside(base, source.position)


def _context_value(source: s.ContextValue, base: Any, local_values: Locals) -> Any:
    if not is_of(base, ContextVar):
        raise Unreadable(f"{source.base} is no context variable")
    try:
        return base.get()
    except LookupError:
        raise Unreadable(f"{source.base} is not set") from None


SEQUENCE_ITERATORS: tuple[type, ...] = (type(iter([])), type(iter(())))
_VIEWS: dict[type, Callable[[Any], Any]] = {type(iter(view({}))): view for view in (dict.keys, dict.values, dict.items)}
TABLE_ITERATORS = tuple(_VIEWS)
COMPOSED = (enumerate, zip, map)


def _type_of(source: s.TypeOf, base: Any, local_values: Locals) -> Any:
    return type(base)


def _cell(source: s.CellContents, base: Any, local_values: Locals) -> Any:
    if not is_of(base, CellType):
        raise Unreadable(f"{source.base} is not a cell")
    return base.cell_contents


def _referent(source: s.Referent, base: Any, local_values: Locals) -> Any:
    if not is_of(base, weakref.ref):
        raise Unreadable(f"{source.base} is not a weak reference")
    found = weakref.ref.__call__(base)
    if found is None:
        raise Unreadable(f"the object of {source.base} is dead")
    return found


def tensor_property(tensor: Any, property: str, dim: int) -> int:
    """``tensor.size(dim)``, ``tensor.stride(dim)`` or ``tensor.storage_offset()``."""
    return int(tensor.storage_offset() if property == "storage_offset" else getattr(tensor, property)(dim))


def _tensor_property(source: s.TensorProperty, base: Any, local_values: Locals) -> Any:
    return tensor_property(base, source.property, source.dim)


_READERS: dict[type, Callable[..., Any]] = {
    s.Local: _local,
    s.Pinned: _pinned,
    s.Attr: _attr,
    s.InstanceDict: _instance_dict,
    s.Item: _item,
    s.DictKeyAt: _key_at,
    s.DictValueAt: _value_at,
    s.Ahead: _ahead,
    s.Iterated: _iterated,
    s.Inside: _inside,
    s.ContextValue: _context_value,
    s.TypeOf: _type_of,
    s.CellContents: _cell,
    s.Referent: _referent,
    s.TensorProperty: _tensor_property,
}


def read(source: s.Source, local_values: Locals) -> Any:
    """The value that ``source`` names, given the function's locals. Raises :class:`Unreadable`."""
    reader = _READERS.get(type(source))
    if reader is None:
        raise GuardError("GU003", what=f"{source!r} is no source", why="there is no reader for its class")
    base = read(source.base, local_values) if hasattr(source, "base") else None
    try:
        return reader(source, base, local_values)
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"{source}: {of_error(error)}") from error


def check(guard: Guard, local_values: Locals) -> bool:
    """Whether the guard holds. An exception on the way counts as failure."""
    kind = kind_of(guard)
    try:
        return bool(kind.check(guard, lambda source: read(source, local_values)))
    except Exception:
        return False
