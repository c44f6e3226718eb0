"""Handlers of bytecode instructions, one family a file; found by folder."""

from __future__ import annotations

import functools
import importlib

from opmill_fake_tensors.lazily import submodules

from .registry import HANDLERS, Handler


@functools.cache
def handlers() -> dict[str, Handler]:
    """Opcode name -> handler(vm, frame, instruction) for the running Python version."""
    for name in submodules(__path__):
        importlib.import_module(f"{__name__}.{name}")
    return HANDLERS
