"""What captured code asks of states of torch that no guard of the thread's state knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

from ..graph.thread_state import switched, switches

if TYPE_CHECKING:
    from ..values.base import Machine, Value


@contextmanager
def as_before(vm: Machine) -> Iterator[bool]:
    """Inside, switches are as the call found them. Gives whether that is another state than the one that captured code is in."""
    now = switches()
    changed = switched(now, vm.entry_switches)
    try:
        for function, *given in changed:
            function(*given)
        yield bool(changed)
    finally:
        for function, *given in switched(vm.entry_switches, now) if changed else ():
            function(*given)


def assume_state(vm: Machine, obj: Callable[..., object], args: list[Value], kwargs: dict[str, Value]) -> None:
    """What a function tells of a state of torch is assumed, unless captured code has set that state itself: then it is not what the call
    found."""
    try:
        plain, named = [vm.plain(a) for a in args], {k: vm.plain(v) for k, v in kwargs.items()}
        found = obj(*plain, **named)
        with as_before(vm) as changed:
            if changed and obj(*plain, **named) != found:
                return
    except Exception:  # which the call meets itself
        return
    name = getattr(obj, "__name__", "a state of torch")
    vm.guard(Predicate(Pinned(obj, name), lambda now: now(*plain, **named) == found, f"{name}{(*plain, *named.values())} gives {found!r}"))


__all__ = ["as_before", "assume_state"]
