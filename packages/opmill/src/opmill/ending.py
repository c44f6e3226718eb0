"""Threads of torch that may drop a tensor of Python's, and the end of the interpreter."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

_NAMES = ("pt_gloo_runloop", "pt_autograd_")
"""How torch names them: those of process groups over Gloo, and those of devices that gradients are computed on."""

_TASKS = "/proc/self/task"
_LIMIT = 5.0
"""Seconds."""


def wait_for_threads(limit: float = _LIMIT) -> bool:
    """Waits until these threads have nothing left to do, for ``limit`` seconds at most; whether they have. To be called by the main thread,
    right before the interpreter ends: a thread that wants the interpreter later is ended in the middle of a destructor, and the process
    aborts. That a process group was destroyed does not help where a mesh still holds it, as torch's caches for DTensor hold meshes.

    Does nothing where the system does not tell threads as Linux does."""
    pause = max(0.01, 2 * sys.getswitchinterval())  # who waits for the interpreter looks again after each interval
    end = time.monotonic() + limit
    before = dict(_threads())
    while before:
        time.sleep(pause)
        after = dict(_threads())
        if after == before and all(state.startswith("S") for state, _ in after.values()):
            return True
        if time.monotonic() > end:
            return False
        before = after
    return True


def _threads() -> Iterator[tuple[str, tuple[str, int]]]:
    """Number, state, and how often it has been switched to, of each such thread."""
    try:
        numbers = os.listdir(_TASKS)
    except OSError:
        return
    for number in numbers:
        try:
            with open(f"{_TASKS}/{number}/comm") as file:
                if not file.read().startswith(_NAMES):
                    continue
            with open(f"{_TASKS}/{number}/status") as file:
                told = dict(line.split(":", 1) for line in file)
            switches = int(told["voluntary_ctxt_switches"]) + int(told["nonvoluntary_ctxt_switches"])
            yield number, (told["State"].strip(), switches)
        except (OSError, KeyError):  # it has ended by now, or this is another system's /proc
            continue
