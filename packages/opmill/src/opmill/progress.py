"""What is shown while compiling takes long: a line on a terminal or in a notebook, or else one a minute in the log."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator

from .logs import topic

_SLOW_S = 1.0
_EVERY_S = 0.5
_LOGGED_S = 60.0
"""Between two lines in the log."""
Told = Callable[[], str]


def progress_of(come_to: Told, wanted: bool | None) -> contextlib.AbstractContextManager[None]:
    """Shows what the capture of a function has come to while it runs."""
    return progress(lambda: f"opmill reads {come_to()}", wanted)


def in_notebook() -> bool:
    """Whether a Jupyter notebook shows what is printed."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextlib.contextmanager
def progress(what: Told, wanted: bool | None, every: float = _LOGGED_S) -> Iterator[None]:
    """Shows ``what()``, asked again and again, while the block runs: with a spinner on stderr at once (True), never (False), or after a
    second on a terminal and in a notebook (None); elsewhere as a line of ``opmill.progress`` each ``every`` seconds, where that topic
    is shown."""
    outer = getattr(_of_thread, "teller", None)
    if outer is not None:  # what is inside of it is what goes on now, in the same line
        with outer.inside(what):
            yield
        return
    shown = sys.stderr.isatty() or in_notebook()
    if wanted is False or (wanted is None and not shown and not topic("progress").isEnabledFor(logging.INFO)):
        yield
        return
    teller: _Spinner | _Lines = _Spinner(what, 0.0 if wanted else _SLOW_S) if wanted or shown else _Lines(what, every)
    _of_thread.teller = teller
    teller.begin()
    try:
        yield
    finally:
        _of_thread.teller = None
        teller.stop()


_of_thread = threading.local()
"""``teller``: what shows the progress of this thread, if anything does."""


def _text(what: Told) -> str:
    try:
        return what()
    except Exception:  # what is told about goes on changing meanwhile
        return "opmill compiles"


class _Telling:
    """What goes on, and what inside of it, the innermost last."""

    def __init__(self, what: Told) -> None:
        self._whats, self._begun = [what], time.monotonic()

    @contextlib.contextmanager
    def inside(self, what: Told) -> Iterator[None]:
        self._whats.append(what)
        try:
            yield
        finally:
            self._whats.remove(what)

    def _told(self) -> str:
        return f"{_text(self._whats[-1])}, since {time.monotonic() - self._begun:.0f} s"


class _Lines(_Telling):
    """Says how far it is, now and then."""

    def __init__(self, what: Told, every: float) -> None:
        super().__init__(what)
        self._every, self._ended = every, threading.Event()

    def begin(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            topic("progress").info("%s", self._told())

    def stop(self) -> None:
        self._ended.set()


class _Spinner(_Telling):
    """A rich status that may be stopped before it was ever started."""

    def __init__(self, what: Told, after: float) -> None:
        from opmill_fake_tensors.forking import ForkLock  # there by now: this is a compile

        super().__init__(what)
        self._lock = ForkLock()
        self._status: contextlib.ExitStack | None = None
        self._stopped = False
        self._timer = threading.Timer(after, self._start)
        self._timer.daemon = True

    def begin(self) -> None:
        self._timer.start()

    def _start(self) -> None:
        """In a thread of its own, which ends with ``stop``."""
        with self._lock:
            if self._stopped:
                return
            # rich costs 50 ms to import: only a compile that shows something pays for it
            from rich.console import Console

            self._status = contextlib.ExitStack()
            status = self._status.enter_context(Console(stderr=True).status(self._told()))
        while not self._stopped:
            status.update(self._told())
            time.sleep(_EVERY_S)

    def stop(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._stopped = True
            if self._status is not None:
                self._status.close()
