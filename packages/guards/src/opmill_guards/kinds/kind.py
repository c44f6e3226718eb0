"""What a kind of guard is: how it is checked in Python, compiled for the native tree, and explained."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
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
    return (guard.source,)


def unchanged(guard: Any) -> Any:
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


def short(value: Any, limit: int = 120) -> str:
    """What a value is, cut to ``limit`` characters. No code of the program runs for it, which may do more than to tell: of objects whose
    ``__repr__`` would, and of what holds them, the class is shown."""
    text = _plainly(value, 4)
    return text if len(text) <= limit else text[: limit - 3] + "..."


_TELLING = (int, float, complex, bool, str, bytes, type(None), type(...), range, FunctionType, BuiltinFunctionType, CodeType)
_BRACKETS: dict[type, tuple[str, str]] = {tuple: ("(", ")"), list: ("[", "]"), set: ("{", "}"), frozenset: ("{", "}")}
_MOST_ITEMS = 40


def _plainly(value: Any, depth: int) -> str:
    kind = type(value)
    if kind in _TELLING:
        return repr(value)
    if issubclass(kind, type):
        return type.__repr__(value)
    if kind is ModuleType:
        return ModuleType.__repr__(value)
    if kind is MethodType:
        return f"<bound method {getattr(value.__func__, '__qualname__', '')} of {_plainly(value.__self__, 0)}>"
    if kind is partial:
        return f"functools.partial({_plainly(value.func, depth)})"
    if kind in _BRACKETS and depth:
        first, last = _BRACKETS[kind]
        items = [_plainly(each, depth - 1) for each in itertools.islice(value, _MOST_ITEMS)]
        return f"{first}{', '.join(items)}{',' if kind is tuple and len(items) == 1 else ''}{last}"
    if kind is dict and depth:
        items = [f"{_plainly(k, depth - 1)}: {_plainly(v, depth - 1)}" for k, v in itertools.islice(value.items(), _MOST_ITEMS)]
        return f"{{{', '.join(items)}}}"
    if kind.__module__ in ("torch", "numpy", "torch.nn.parameter"):  # types, devices, tensors
        try:
            return repr(value)
        except Exception:
            return f"<{kind.__qualname__}>"
    return f"<{kind.__module__}.{kind.__qualname__} object>"
