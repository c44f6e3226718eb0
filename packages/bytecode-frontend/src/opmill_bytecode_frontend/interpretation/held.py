"""Whether objects that were there before the call are known by identity."""

from __future__ import annotations

from typing import Any

from opmill_guards.source import Pinned, Referent


def root_is_pinned(source: Any) -> bool:
    """Whether what is found there is held by what is pinned: not on the way through a weak reference."""
    if type(source.root) is not Pinned:
        return False
    while type(source) is not Pinned:
        if type(source) is Referent:
            return False
        source = source.base
    return True


def is_held(vm: Any, source: Any) -> bool:
    """Whether objects found there are known by identity: no argument leads there, and no other was found there, or on the way, before."""
    if not root_is_pinned(source):
        return False
    while vm.varying.rebound and type(source) is not Pinned:
        if source in vm.varying.rebound:
            return False
        source = source.base
    return True


__all__ = ["is_held", "root_is_pinned"]
