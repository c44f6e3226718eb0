"""Whether objects that were there before the call are known by identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opmill_guards.source import ContextValue, Local, Pinned, Referent, Source

if TYPE_CHECKING:
    from .machine import Interpreter


def root_is_pinned(source: Source) -> bool:
    """Whether what is found there is held by what is pinned: not on the way through a weak reference or a context."""
    return type(source.root) is Pinned and not any(type(each) in (Referent, ContextValue) for each in way_to(source))


def is_held(vm: Interpreter, source: Source) -> bool:
    """Whether objects found there are known by identity: no argument leads there, and no other was found there, or on the way, before."""
    return root_is_pinned(source) and vm.varying.rebound.isdisjoint(way_to(source))


def way_to(source: Source) -> Iterator[Source]:
    """The source and those that it is found through, but for the root."""
    while not isinstance(source, (Pinned, Local)):
        yield source
        source = source.base


__all__ = ["is_held", "root_is_pinned"]
