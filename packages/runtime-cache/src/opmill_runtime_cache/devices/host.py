"""The device that every plan has: the processor that the program itself runs on."""

from __future__ import annotations

HOST = "cpu"
"""torch's name for it."""

__all__ = ["HOST"]
