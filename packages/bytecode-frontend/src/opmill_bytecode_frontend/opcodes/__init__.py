"""Handlers of bytecode instructions, one family a file; found by folder."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any

from .registry import HANDLERS


@functools.cache
def handlers() -> dict[str, Any]:
    """Opcode name -> handler(vm, frame, instruction) for the running Python version."""
    for found in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{found.name}")
    return HANDLERS
