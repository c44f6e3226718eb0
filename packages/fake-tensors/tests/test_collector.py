"""The collector is off inside, as it was outside, whoever leaves last."""

from __future__ import annotations

import gc
import threading

import pytest

from opmill_fake_tensors.collector import collector_paused


@pytest.mark.parametrize("enabled", [True, False])
def test_as_it_was_before(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    try:
        with collector_paused():
            assert not gc.isenabled()
            with pytest.raises(ValueError, match="inside"), collector_paused():
                raise ValueError("inside")
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def test_until_the_last_thread_is_done() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with collector_paused():
            entered.set()
            leave.wait(100)

    thread = threading.Thread(target=other)
    with collector_paused():
        thread.start()
        assert entered.wait(100)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()
