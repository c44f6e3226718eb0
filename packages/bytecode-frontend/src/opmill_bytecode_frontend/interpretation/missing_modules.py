"""Imports that fail because there is no such module, now: one may come into ``sys.modules``, be installed, or be found on a longer path."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned

if TYPE_CHECKING:
    from ..values.base import Machine


def is_missing(name: str, modules: Mapping[str, ModuleType | None]) -> bool:
    """Whether the import of a module (with all dots) would say that there is none. No module is imported for the answer."""
    for part in itertools.accumulate(name.split("."), "{}.{}".format):
        if modules.get(part) is None:
            try:
                return part in modules or importlib.util.find_spec(part) is None
            except ModuleNotFoundError:  # what it would be in is no package
                return True
    return False


def absolute(name: str, level: int, namespace: Mapping[str, object]) -> str | None:
    """The whole name of a module that is imported with so many leading dots; None where they lead nowhere."""
    try:
        return importlib.util.resolve_name("." * level + name, str(namespace.get("__package__") or namespace.get("__name__")))
    except ImportError:
        return None


def stays_missing(vm: Machine, name: str, error: Exception | None = None) -> None:
    """What is captured is for a module that is still missing at the next call. ``error``: what its import raised; where it is another
    failure, the module's code is run at each import: behind a break."""
    if is_missing(name, sys.modules):
        vm.guard(Predicate(Pinned(sys.modules, "sys.modules"), functools.partial(is_missing, name), f"there is no module {name}"))
    elif error is not None:
        vm.unsupported("FE021", f"import of {name}", f"it fails by {type(error).__name__}, and its code is run at each import")


__all__ = ["absolute", "is_missing", "stays_missing"]
