"""What a function of ``functools.singledispatch`` that captured code makes keeps of the classes it was called with."""

from __future__ import annotations

import weakref

from .mapping import DictValue


class FoundImplementations(DictValue):
    """The implementation for each class that was asked for. It saves the generic function a search: outside of captured code it begins
    empty."""

    def __init__(self) -> None:
        super().__init__({}, weakref.WeakKeyDictionary)


__all__ = ["FoundImplementations"]
