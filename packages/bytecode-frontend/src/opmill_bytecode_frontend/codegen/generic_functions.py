"""What generic functions made in captured code have found, where they leave it."""

from __future__ import annotations

import weakref

from ..values.generic_functions import FoundImplementations
from .rebuild import Rebuilder, rebuilds


@rebuilds(FoundImplementations)
def found_implementations(r: Rebuilder, value: FoundImplementations) -> str:
    """An empty one: what the function is called with fills it again."""
    return r.assign(value, f"{r.constants.name(weakref.WeakKeyDictionary)}()")


__all__ = ["found_implementations"]
