"""Symbolic interpretation of Python bytecode into FX graphs.

``capture(fn, backend)`` is the public entry; it is loaded at first use, so that ``opmill_bytecode_frontend.bytecode`` needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .__about__ import __version__ as __version__
from .errors import Unsupported as Unsupported
from .options import CaptureOptions as CaptureOptions

if TYPE_CHECKING:
    from .entry.capture import capture as capture

__all__ = ["CaptureOptions", "Unsupported", "__version__", "capture"]


def __getattr__(name: str) -> object:
    if name == "capture":
        from importlib import import_module

        function = import_module(".entry.capture", __name__).capture
        globals()["capture"] = function
        return function
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
