"""Higher-order operators: functions of torch whose arguments are graphs. Families are files, found by folder.

A row is ``row(run, *args, **kwargs)`` with the operator's own arguments, graphs as modules; it gives what the operator gives. Operators
without a row are called as they are."""

from __future__ import annotations

import importlib

from opmill_fake_tensors.lazily import submodules

from .registry import ROWS as ROWS
from .registry import Run as Run

for _name in submodules(__path__):
    importlib.import_module(f"{__name__}.{_name}")

__all__ = ["ROWS", "Run"]
