"""A line on the terminal while compiling takes long. Silent in pipes, notebooks without a terminal, and fast compiles."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

_SLOW_S = 3.0


@contextlib.contextmanager
def progress(what: str, wanted: bool | None) -> Iterator[None]:
    """Shows ``what`` with a spinner on stderr while the block runs: at once (True), never (False), or after some seconds on a terminal (None)."""
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield
        return
    spinner = _Spinner(what)
    timer = threading.Timer(0.0 if wanted else _SLOW_S, spinner.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        spinner.stop()


class _Spinner:
    """A rich status that may be stopped before it was ever started."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._status: contextlib.ExitStack | None = None
        self._stopped = False

    def start(self) -> None:
        with self._lock:
            if not self._stopped:
                # rich costs 50 ms to import: only a compile that shows something pays for it
                from rich.console import Console

                self._status = contextlib.ExitStack()
                self._status.enter_context(Console(stderr=True).status(self._what))

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._status is not None:
                self._status.close()
