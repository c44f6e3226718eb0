"""Captures that several callables share, and how long they live.

Modules and methods are called through one capture for each piece of code, equal arguments of ``compile`` and kinds of modules that one
capture can serve; so are functions that are made anew by a function around them. It is gone with the last callable that was made of it, but
for those of the last few owners: a program that compiles one model again in every epoch, and drops what it got, finds what it had.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from types import CodeType
from typing import Any

_LAST = 4
"""Owners whose captures stay as long as they do. Few, since a capture may hold what holds its owner: a function among its parts, say."""

_LAST_CODES = 32
"""Pieces of code whose captures stay as long as they do, which is mostly for ever: these hold nothing of the functions."""

_shared: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
_Kept = OrderedDict[tuple[int, int], tuple[weakref.ref[Any], Any]]
_last: _Kept = OrderedDict()
_last_codes: _Kept = OrderedDict()


def share(key: Hashable, make: Callable[[], Any]) -> Any:
    """What ``make`` gave for an equal key, as long as that is alive."""
    compiled = _shared.get(key)
    if compiled is None:
        compiled = _shared.setdefault(key, make())  # another thread may have been first
    return compiled


def keep_with(owner: object, compiled: Any) -> None:
    """Keeps ``compiled`` as long as ``owner`` is alive and among the last few."""
    kept, most = (_last_codes, _LAST_CODES) if type(owner) is CodeType else (_last, _LAST)
    key = id(owner), id(compiled)
    try:
        alive = weakref.ref(owner, lambda _: kept.pop(key, None))
    except TypeError:  # of a class with slots
        return
    kept[key] = alive, compiled
    kept.move_to_end(key)
    while len(kept) > most:
        try:
            kept.popitem(last=False)
        except KeyError:  # another thread was first
            break


def drop_all() -> None:
    """Keeps nothing any longer."""
    _last.clear()
    _last_codes.clear()


__all__ = ["drop_all", "keep_with", "share"]
