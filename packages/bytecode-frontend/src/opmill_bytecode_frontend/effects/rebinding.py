"""Whether code of the program gives a name another value than the first: a backward that reads it may then run between the two.

Code that can be found says so: functions of the module, methods of its classes, functions inside of these, and what is running. What other
code does is seen when the backward runs (`graph.pending`)."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from ..graph import pending
from ..interpretation.owners import installed

STORES = {
    pending.global_name: ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "STORE_ATTR"),
    pending.attribute: ("STORE_ATTR", "DELETE_ATTR"),
    pending.cell: ("STORE_DEREF", "DELETE_DEREF"),
}
WRITES = frozenset(name for table in pending.TABLES for name in dir(table)) - frozenset(dir(tuple)) - frozenset(dir(frozenset)) - {
    "copy", "fromkeys", "get", "items", "keys", "values",
}  # fmt: skip
"""Methods that change a table."""
BY_NAME = frozenset({"setattr", "delattr", "globals", "__dict__", "vars"})
"""What code calls that stores under a name which it has as a string."""


def is_rebound(kind: object, name: str, namespaces: Iterable[Mapping[str, object]]) -> bool:
    """``kind``: how the name is read, one of `graph.pending`; ``namespaces``: of the modules whose code may store it."""
    places = list({id(namespace): namespace for namespace in namespaces}.values())
    if kind is not pending.cell and any(namespace.get("__name__") == "__main__" and "__file__" not in namespace for namespace in places):
        return True  # of a session: what comes next is not known
    seen = {code for namespace in places for code in codes(namespace)} | set(running(places))
    return any(stores(code, kind, name) for code in seen)


def codes(namespace: Mapping[str, object]) -> Iterator[CodeType]:
    """Of the functions and classes of a module, and of what is defined inside of them."""
    for value in list(namespace.values()):
        members = list(vars(value).values()) if isinstance(value, type) and value.__module__ == namespace.get("__name__") else [value]
        for member in members:
            for function in (member, *(getattr(member, part, None) for part in ("__func__", "fget", "fset", "__wrapped__"))):
                if type(function) is FunctionType:
                    yield from nested(function.__code__)


def running(namespaces: Iterable[Mapping[str, object]]) -> Iterator[CodeType]:
    """What called the capture: a script, say, which is no function of its module."""
    frame = sys._getframe()
    while frame is not None:
        if any(frame.f_globals is namespace for namespace in namespaces) and not installed(frame.f_code.co_filename):
            yield from nested(frame.f_code)
        frame = frame.f_back  # type: ignore[assignment]


def nested(code: CodeType) -> Iterator[CodeType]:
    """Code, and the code of all functions inside of it."""
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from nested(constant)


def stores(code: CodeType, kind: Any, name: str) -> bool:
    """Whether code stores the name, but for the one time that is its definition: in a module's own code, or where a variable is from."""
    if kind is not pending.cell and name in code.co_consts and not BY_NAME.isdisjoint(code.co_names):
        return True
    if name not in (*code.co_names, *code.co_freevars, *code.co_cellvars):
        return False
    if kind is pending.attribute and code.co_name == "__init__":
        return False
    if kind is pending.contents:
        return not WRITES.isdisjoint(code.co_names) or any(
            each.opname in ("STORE_SUBSCR", "DELETE_SUBSCR") for each in dis.get_instructions(code)
        )
    found = [each.opname for each in dis.get_instructions(code) if each.opname in STORES[kind] and each.argval == name]
    defines = "STORE_NAME" if kind is pending.global_name else "STORE_DEREF" if name in code.co_cellvars else ""
    first = 1 - (name in code.co_varnames) if defines else 0
    return len(found) > (first if defines in found else 0)


__all__ = ["is_rebound"]
