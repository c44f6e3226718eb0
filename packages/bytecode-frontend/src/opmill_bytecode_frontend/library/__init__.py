"""What calls of known callables mean. Families are files, found by folder."""

from __future__ import annotations

import importlib
from typing import Any

from opmill_fake_tensors.lazily import submodules

from . import classes, dispatch
from .classes import construct as construct
from .dispatch import call_builtin as call_builtin
from .dispatch import intercepted as intercepted

for _name in submodules(__path__):
    importlib.import_module(f"{__name__}.{_name}")

__all__ = ["Any", "call_builtin", "classes", "construct", "dispatch", "intercepted"]
