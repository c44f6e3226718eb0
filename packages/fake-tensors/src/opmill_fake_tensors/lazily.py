"""What is made when it is first asked for: attributes, facts about classes, and tables out of the files of a folder."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """``functools.cached_property`` as it is from Python 3.12 on.

    That of 3.11 holds a lock, one for all instances of a class, while it computes: a process forked meanwhile by another thread waits for
    it for ever. Two threads that ask at once may both compute the value here; both get the one that was stored first."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance.__dict__.setdefault(self.name, self.compute(instance))


def once_for_each_class(compute: Callable[[type], T]) -> Callable[[type], T]:
    """``functools.cache`` for a function of a class, under which the class ends when it would without: what it holds, and all that the
    modules of its methods hold, with it. The class is known by its identity; a metaclass of the program is not asked for a hash."""
    known: dict[int, tuple[weakref.ref[type], T]] = {}

    def forget(place: int, gone: weakref.ref[type]) -> None:
        if (of := known.get(place)) is not None and of[0] is gone:
            known.pop(place, None)

    @functools.wraps(compute)
    def found(cls: type) -> T:
        place = id(cls)
        of = known.get(place)
        if of is None or of[0]() is not cls:
            of = known[place] = weakref.ref(cls, functools.partial(forget, place)), compute(cls)
        return of[1]

    return found


def submodules(folders: Iterable[str]) -> list[str]:
    """The names of the modules in a package's folders (its ``__path__``). Raises OSError for a folder that cannot be read: to
    ``pkgutil.iter_modules`` that is an empty one, and a table made of it would lack everything for the life of the process."""
    names = {name for folder in folders for name in os.listdir(folder)}
    return sorted(name.removesuffix(".py") for name in names if name.endswith(".py") and name != "__init__.py")


__all__ = ["cached_property", "once_for_each_class", "submodules"]
