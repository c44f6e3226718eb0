"""Threads that capture for one function take turns, and wait for nobody who waits for them."""

import threading

from opmill_bytecode_frontend.entry.turns import Turns


def test_one_at_a_time():
    turns, order, inside = Turns(), [], threading.Event()

    def other():
        inside.wait(20)
        with turns.mine() as mine:
            order.append(("other", mine))

    thread = threading.Thread(target=other)
    thread.start()
    with turns.mine() as mine:
        inside.set()
        order.append(("first", mine))
    thread.join(20)
    assert order == [("first", True), ("other", True)]


def test_the_same_thread_goes_on():
    turns = Turns()
    with turns.mine() as outer, turns.mine() as inner:
        assert outer and inner


def test_who_has_a_turn_does_not_wait_for_another_function():
    """Two functions that call each other, captured by two threads: one of them would wait for ever."""
    first, second, held, seen = Turns(), Turns(), threading.Barrier(2, timeout=20), []

    def capture(own, other):
        with own.mine():
            held.wait()
            with other.mine() as mine:
                seen.append(mine)
            held.wait()

    threads = [threading.Thread(target=capture, args=pair) for pair in ((first, second), (second, first))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen == [False, False]
    with first.mine() as mine:
        assert mine  # nobody holds it any more
