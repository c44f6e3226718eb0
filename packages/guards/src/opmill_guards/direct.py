"""Entries that call something native and make its outputs into a result without running Python; see ``native/direct.cpp``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._native import DirectCall

_OUTPUT, _INPUT, _CONSTANT, _TUPLE, _LIST, _DICT, _OBJECT = range(7)


class Result:
    """How the result of a call is made, part by part. Every method adds a part and gives its number, by which later parts refer to it: a
    part that is used twice is one object. The last part is the result."""

    def __init__(self) -> None:
        self._parts: list[tuple[Any, ...]] = []

    def output(self, index: int) -> int:
        """One of what the graph gave."""
        return self._add(_OUTPUT, index)

    def input(self, index: int) -> int:
        """One of what the guards loaded."""
        return self._add(_INPUT, index)

    def constant(self, value: Any) -> int:
        """The same object at every call."""
        return self._add(_CONSTANT, object=value)

    def tuple_of(self, items: Sequence[int]) -> int:
        return self._add(_TUPLE, items=items)

    def list_of(self, items: Sequence[int]) -> int:
        """A new list at every call."""
        return self._add(_LIST, items=items)

    def dict_of(self, items: Mapping[Any, int]) -> int:
        """A new dict at every call. Comparing or hashing its keys must not run Python."""
        return self._add(_DICT, items=tuple(items.values()), keys=tuple(items))

    def instance(self, cls: type, base: type, stored: Mapping[Any, int], attributes: Mapping[str, int]) -> int:
        """A new instance of ``cls``, made by the ``__new__`` of ``base`` (``object``, ``dict`` or ``OrderedDict``) and without
        ``__init__``; ``stored``: items that ``base`` puts into it; ``attributes``: of its instance dictionary."""
        items = (*stored.values(), *attributes.values())
        return self._add(_OBJECT, object=cls, base=base, items=items, keys=(*stored, *attributes), stored=len(stored))

    def _add(
        self,
        kind: int,
        index: int = 0,
        *,
        object: Any = None,
        base: Any = None,
        items: Sequence[int] = (),
        keys: Sequence[Any] = (),
        stored: int = 0,
    ) -> int:
        self._parts.append((kind, index, object, base, tuple(items), tuple(keys), stored))
        return len(self._parts) - 1

    def call(
        self,
        graph: Callable[..., Any],
        failed: Callable[[Exception, tuple[Any, ...], dict[str, Any]], Any],
        recover: Callable[[Exception, tuple[Any, ...]], Any] | None = None,
    ) -> DirectCall:
        """What an entry does: ``graph`` is given all that the guards load and gives a sequence. Where it raises an ``Exception``,
        ``recover(error, inputs)`` gives the outputs, if there is one; where that raises, too, ``failed(error, args, kwargs)`` gives the
        result of the call with these arguments."""
        return DirectCall(graph, recover, failed, tuple(self._parts))
