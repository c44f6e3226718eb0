"""Allocations of native code that fail: a library that stands before the allocator of the system (``failing_memory.cpp``) is built, and the
process started again with it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("failing_memory.cpp")
PRELOADED = "OPMILL_FAULTS_LIBRARY"
_PLUMBING = ("libc.so", "libstdc++", "libgcc", "ld-linux", "failing_memory", "[0x")
"""Libraries that a failure passes through on its way to whoever did not see to it."""


def start_again() -> None:
    """Builds the library and starts this program again with it before all others; does nothing in that program."""
    if PRELOADED in os.environ:
        return
    library = Path(tempfile.mkdtemp(prefix="failing-memory-")) / "failing_memory.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE)], check=True)
    environment = {**os.environ, PRELOADED: str(library), "LD_PRELOAD": str(library)}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


class NativeMemory:
    """The nth allocation of native code fails, with ``length`` - 1 behind it: of the process, or (``own``) of opmill's libraries and kernels
    alone."""

    def __init__(self, own: bool, length: int = 1, told_to: int = 2) -> None:
        self._library = ctypes.CDLL(os.environ[PRELOADED])
        self._library.faults_disarm.restype = ctypes.c_long
        self._own, self._length, self._told_to = own, length, told_to
        self.count, self.where = 0, ""

    def arm(self, at: int) -> None:
        self._library.faults_arm(ctypes.c_long(at), ctypes.c_long(self._length if at else 0), int(self._own), self._told_to)

    def disarm(self) -> None:
        self.count = self._library.faults_disarm()


def blamed(frames: str) -> str:
    """The library in which a process ended by a signal: the innermost that is no plumbing."""
    for line in frames.splitlines():
        if line.startswith(("/", "[")) and not any(part in line for part in _PLUMBING):
            return line
    return ""


def is_ours(library: str) -> bool:
    return "opmill" in library


__all__: list[Any] = ["NativeMemory", "blamed", "is_ours", "start_again"]
