"""What calls of known callables mean. A room for whose they are (builtins, the standard library, torch, NumPy), a file for each family of
them; found by folder."""

from __future__ import annotations

import importlib

from opmill_fake_tensors.lazily import submodules

from . import builtins, numpy, standard, torch
from .builtins import classes as classes
from .builtins.classes import construct as construct
from .dispatch import call_builtin as call_builtin
from .dispatch import intercepted as intercepted

for _room in (builtins, standard, torch, numpy):
    for _name in submodules(_room.__path__):
        importlib.import_module(f"{_room.__name__}.{_name}")

__all__ = ["call_builtin", "classes", "construct", "intercepted"]
