"""A process forked while another thread compiles: nothing in it waits for a thread that it does not have."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from opmill_fake_tensors.collector import collector_paused
from opmill_fake_tensors.forking import ForkLock
from opmill_fake_tensors.lazily import cached_property

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
BOUND_S = 60


def in_child(body: Callable[[], bool]) -> bool:
    """Whether ``body``, run in a forked child, gives True within its time."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(BOUND_S)
        good = False
        try:
            good = body()
        finally:
            os._exit(0 if good else 1)
    return os.waitpid(child, 0)[1] == 0


class Elsewhere:
    """Another thread that is in the middle of ``body`` while this one is in the ``with`` statement. ``body`` is given what to call
    there."""

    def __init__(self, body: Callable[[Callable[[], None]], None]) -> None:
        self.there, self.leave = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=body, args=(self._stay,), daemon=True)

    def _stay(self) -> None:
        self.there.set()
        assert self.leave.wait(BOUND_S)

    def __enter__(self) -> None:
        self.thread.start()
        assert self.there.wait(BOUND_S)

    def __exit__(self, *_: object) -> None:
        self.leave.set()
        self.thread.join(BOUND_S)
        assert not self.thread.is_alive()


def test_a_lock_that_another_thread_holds_is_free_in_the_child() -> None:
    lock = ForkLock()

    def holding(stay: Callable[[], None]) -> None:
        with lock:
            stay()

    with Elsewhere(holding):
        assert not lock.acquire(blocking=False)
        assert in_child(lambda: lock.acquire(blocking=False))
    assert lock.acquire(blocking=False)
    lock.release()


def test_a_lock_that_the_forking_thread_holds_stays_its_own() -> None:
    lock = ForkLock()

    def held() -> bool:
        found = []
        other = threading.Thread(target=lambda: found.append(lock.acquire(blocking=False)))
        other.start()
        other.join(BOUND_S)
        return found == [False]

    with lock:
        assert in_child(held)


def test_the_collector_runs_in_the_child() -> None:
    """The other thread's block does not end there; the forking thread's own does."""

    def pausing(stay: Callable[[], None]) -> None:
        with collector_paused():
            stay()

    with Elsewhere(pausing):
        assert not gc.isenabled()
        assert in_child(lambda: gc.isenabled())
        with collector_paused():
            assert in_child(lambda: not gc.isenabled())
    assert gc.isenabled()


@pytest.fixture
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module whose import goes on when ``opmill_slow_gate.go`` is set, and then imports another."""
    (tmp_path / "opmill_slow_gate.py").write_text("import threading\nstarted, go = threading.Event(), threading.Event()\n")
    (tmp_path / "opmill_slow_second.py").write_text("value = 1\n")
    (tmp_path / "opmill_slow_first.py").write_text(
        textwrap.dedent(f"""
        from opmill_slow_gate import started, go
        started.set()
        assert go.wait({BOUND_S})
        from opmill_slow_second import value
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "opmill_slow_first"


def test_a_module_that_another_thread_imports_is_whole_in_the_child(slow_module: str) -> None:
    gate = importlib.import_module("opmill_slow_gate")

    thread = threading.Thread(target=importlib.import_module, args=(slow_module,), daemon=True)
    thread.start()
    assert gate.started.wait(BOUND_S)
    os.register_at_fork(before=gate.go.set)  # last registered, first called: the import goes on when the fork has begun
    assert in_child(lambda: importlib.import_module(slow_module).value == 1)
    thread.join(BOUND_S)
    assert not thread.is_alive()
    for name in [name for name in sys.modules if name.startswith("opmill_slow")]:
        del sys.modules[name]


def test_a_fork_inside_an_import_does_not_wait_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "opmill_forks.py").write_text(
        "import os\nchild = os.fork()\nif not child:\n    os._exit(0)\nstatus = os.waitpid(child, 0)[1]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("opmill_forks").status == 0
    del sys.modules["opmill_forks"]


def test_a_property_is_computed_once_without_a_lock() -> None:
    computed = []

    class Thing:
        @cached_property
        def value(self) -> int:
            """What it is."""
            computed.append(1)
            return 7

    thing = Thing()
    assert (thing.value, thing.value, computed, Thing.value.__doc__) == (7, 7, [1], "What it is.")
    assert vars(thing) == {"value": 7}

    class Held:
        @cached_property
        def value(self) -> int:
            if threading.current_thread() is not threading.main_thread():
                stays[0]()
            return 3

    stays: list[Callable[[], None]] = []

    def computing(stay: Callable[[], None]) -> None:
        stays.append(stay)
        assert Held().value == 3

    with Elsewhere(computing):
        assert in_child(lambda: Held().value == 3)
