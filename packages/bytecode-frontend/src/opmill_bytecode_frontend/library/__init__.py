"""What calls of known callables mean. Families are files, found by folder."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from . import classes, dispatch
from .classes import construct as construct
from .dispatch import call_builtin as call_builtin
from .dispatch import intercepted as intercepted

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")

__all__ = ["Any", "call_builtin", "classes", "construct", "dispatch", "intercepted"]
