"""Locks in forked children."""

import os
import threading

import pytest

from opmill_runtime_cache.forking import ForkLock


def test_the_same_thread_may_enter_again_and_others_wait():
    lock, seen = ForkLock(), []
    with lock, lock:
        other = threading.Thread(target=lambda: lock.__enter__() or seen.append("in") or lock.__exit__())
        other.start()
        assert not seen
    other.join(20)
    assert seen == ["in"]


def test_it_stays_with_its_holder():
    lock = ForkLock()
    with lock:
        lock.free()  # taken from a thread that is gone, not from this one
        assert lock._lock._is_owned()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_child_finds_it_free_whoever_held_it():
    lock, held, done = ForkLock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    child = os.fork()
    if not child:
        os._exit(0 if lock._lock.acquire(timeout=5) else 1)
    done.set()
    thread.join(20)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
