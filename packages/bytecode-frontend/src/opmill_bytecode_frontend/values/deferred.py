"""Modules that torch imports when they are first asked for, and that captured code need not import to be understood."""

from __future__ import annotations

import sys
from types import SimpleNamespace


def nothing(*args: object, **kwargs: object) -> None:
    """Inside of captured code sizes are what they are."""


MARKS = ("mark_static", "mark_dynamic", "maybe_mark_dynamic", "mark_unbacked", "mark_static_address")
_STANDING_IN = {"torch._dynamo": SimpleNamespace(**dict.fromkeys(MARKS, nothing))}


def standing_in(module: str, name: str) -> SimpleNamespace | None:
    """What stands for attribute ``name`` of a module, a module that is not imported yet; None where nothing does."""
    full = f"{module}.{name}"
    return _STANDING_IN.get(full) if full not in sys.modules else None
