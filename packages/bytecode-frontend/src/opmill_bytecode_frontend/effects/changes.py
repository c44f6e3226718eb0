"""Changes of objects that existed before the call, kept as data until the graph has run."""

from __future__ import annotations

import logging
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from ..assumptions.asked import is_asked
from ..errors import Unsupported
from ..values.base import Value

if TYPE_CHECKING:
    from ..assumptions.asked import Asked
    from ..values.locks import LockValue
    from ..values.numpy_generators import NumpyGenerator
    from .backwards import Backward
    from .locks import Lock


class Effects:
    """``changed``: tracked values of pre-existing objects that differ from them now, in order of first change;
    ``globals``: (dictionary, name) -> new value or None for deleted; ``attributes``: (class, name) -> (class, name, what is found there at
    capture, new value or None for deleted, whether it was deleted before); ``draws``: calls of generators of random numbers, made before
    the graph, and the tracked result of each; ``asked``: other calls made before the graph; ``calls``: callables to run afterwards with
    rebuilt arguments (prints, warnings, log records)."""

    def __init__(self) -> None:
        self.changed: list[Value] = []
        self.mutations = 0
        self.globals: dict[tuple[int, str], tuple[dict[str, object], str, Value | None]] = {}
        self.attributes: dict[tuple[int, str], tuple[type, str, object, Value | None, bool]] = {}
        self.draws: list[tuple[object, list[Value], dict[str, Value], Value]] = []
        self.seeded: dict[int, NumpyGenerator] = {}
        """Of NumPy's generators (``id``) that captured code has seeded, what stands for them: what they draw is known."""
        self.asked: list[Asked] = []
        self.calls: list[tuple[object, list[Value], dict[str, Value]]] = []
        self.locks: list[LockValue] = []
        """Locks of before the call that captured code took (`effects.locks`), ..."""
        self.contended: weakref.WeakSet[Lock] = weakref.WeakSet()
        """... and those that it is not to hold, as others often do."""
        self.handles = 0
        """How many handles of hooks captured code has made; each has a number from torch's counter."""
        self.context: dict[int, Value] = {}
        """Of context variables (``id``) that captured code has set, what they hold."""
        self.first: object = None
        """The one of ``calls`` that, with those before it, comes before all other changes."""
        self.backwards: list[Backward] = []
        """Those of the program's own that are parts of the graph (`effects.backwards`)."""
        self.reads: list[tuple[object, Any, str]] | None = None
        """What a backward that is being recorded has read."""

    def mutated(self, value: Value) -> None:
        if is_asked(value.source):
            why = "what other callers of the function are given changes with it"
            raise Unsupported("FE010", f"a change of the {value.describe()} that a cache gave", why, "change a copy")
        self.mutations += 1
        if not any(v is value for v in self.changed):
            self.changed.append(value)

    def store_global(self, namespace: dict[str, object], name: str, value: Value | None) -> None:
        self.globals[(id(namespace), name)] = (namespace, name, value)

    def store_attribute(self, cls: type, name: str, found: object, value: Value | None) -> None:
        before = self.attributes.get((id(cls), name))
        again = before is not None and (before[3] is None or before[4])
        if before is not None and before[3] is None:
            del self.attributes[id(cls), name]  # it comes to stand behind the others
        self.attributes[id(cls), name] = (cls, name, found, value, again)

    def assigned(self, owner: Value, name: Value, value: Value) -> None:
        """An attribute is to be set when the graph has run; what was to be set before is not, unless something comes in between that may
        read it."""
        since = next((k + 1 for k, call in enumerate(self.calls) if call is self.first), 0)
        self.calls[since:] = [call for call in self.calls[since:] if not (call[0] is setattr and call[1][0] is owner)]
        self.calls.append((setattr, [owner, name, value], {}))

    def last(self) -> object:
        """The last call that is to be made behind the graph, or None."""
        return self.calls[-1] if self.calls else None

    def state(self) -> tuple[int, ...]:
        """What tells whether captured code has done anything since."""
        return self.mutations, len(self.globals), len(self.attributes), len(self.draws), len(self.calls), len(self.asked), self.handles

    def __bool__(self) -> bool:
        return bool(self.changed or self.globals or self.attributes or self.draws or self.calls or self.handles)


def warn_at(message: str | Warning, category: type[Warning] | None, filename: str, lineno: int, namespace: dict[str, Any]) -> None:
    """The warning that a call of ``warnings.warn`` in that line gives, shown as often as that one would be."""
    registry = namespace.setdefault("__warningregistry__", {})
    category = type(message) if isinstance(message, Warning) else category or UserWarning
    warnings.warn_explicit(message, category, filename, lineno, namespace.get("__name__") or "<string>", registry)


def log_at(logger: logging.Logger, level: int, msg: object, args: Any, extra: Any, filename: str, lineno: int, function: str) -> None:
    """The log record that a call in that line makes."""
    logger.handle(logger.makeRecord(logger.name, level, filename, lineno, msg, args, None, function, extra))
