"""What a kind of guard is: how it is checked in Python, compiled for the native tree, and explained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from ..guard import Guard
from ..source import Source

Read = Callable[[Source], Any]


class Builder(Protocol):
    """Collects the parts of one native tree."""

    names: tuple[str, ...]

    def leaf(self, source: Source, kind: str, operand: Any, cost: int) -> None:
        """A check of one value: see ``native/leaves.cpp`` for the kinds and their operands."""

    def first(self, kind: str, operand: Any) -> None:
        """A check that looks at no source, before all others."""

    def relation(self, kind: str, function: Callable[..., bool] | None, sources: tuple[Source, ...], code: tuple[int, ...] = ()) -> None:
        """``same`` or ``distinct`` objects, ``call``: what the function says of the values, or ``sizes``: what ``code`` says of integers,
        and the function where that cannot tell."""

    def watch(self, structure: Any, root: Source, tensors: tuple[Source, ...]) -> None:
        """A native ``ModuleStructure`` that the tree of modules below ``root`` has, after all others. ``tensors``: where the tensors are
        that it pins, in its order."""

    def add(self, guard: Guard) -> None:
        """Another guard of the same tree."""

    def nested(self, guards: tuple[Guard, ...]) -> Any:
        """A native tree of its own over the same locals."""

    def read(self, source: Source, values: tuple[Any, ...]) -> Any:
        """The value of a source, the locals given in the order of ``names``."""

    def check(self, guard: Guard, values: tuple[Any, ...]) -> bool:
        """Whether a guard holds, in Python."""


def one_source(guard: Any) -> tuple[Source, ...]:
    """The sources of a guard that has one."""
    return (guard.source,)


def unchanged(guard: Any) -> Any:
    """The guard itself: what kinds say that have nothing to shorten."""
    return guard


class Kind(Struct, frozen=True):
    """One kind of guard. ``cost`` is relative: cheaper ones are checked first.

    ``describe(guard, read)`` gives (expected, found) as text, for a guard that failed and whose sources could be read.
    ``prepare`` is called once when a set of guards is made, to take down what the guard needs to know of the present.
    """

    guard: type
    cost: int
    check: Callable[[Any, Read], bool]
    compile: Callable[[Any, Builder], None]
    describe: Callable[[Any, Read], tuple[str, str]]
    sources: Callable[[Any], tuple[Source, ...]] = one_source
    prepare: Callable[[Any], Any] = unchanged
