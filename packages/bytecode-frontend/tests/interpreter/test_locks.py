"""Locks in captured code: taken, held and given back as the program does it, as others see it too."""

import queue
import threading
import types

import pytest
import torch
from alike import same

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.effects.locks import MOST_WAITED, Locks, Taking

PROGRAMS = """
def in_a_block(o, x):
    with o.lock: y = x.sin()
    return y + 1
def by_hand(o, x):
    o.lock.acquire()
    try: y = x.sin()
    finally: o.lock.release()
    return y
def if_it_is_free(o, x):
    if o.lock.acquire(blocking=False):
        y = x.sin(); o.lock.release()
    else: y = x
    return y
def with_a_limit(o, x): return x.sin() if o.lock.acquire(True, -1) and o.lock.release() is None else x
def twice(o, x):
    with o.again:
        with o.again: y = x * 2
        print('held', y.shape[0])
    return y
def not_twice(o, x):
    with o.lock: return x.sin(), o.lock.acquire(False), o.lock.locked()
def two(o, x):
    with o.lock, o.again: return x.sin()
def one_behind_another(o, x):
    with o.lock: x = x.sin()
    with o.again: return x + 1
def counted(o, x):
    with o.lock: o.n += 1
    return x * o.n
def remembered(o, x):
    with o.lock:
        if len(x) not in o.seen: o.seen[len(x)] = torch.arange(float(len(x)))
    return o.seen[len(x)] + x
def caught(o, x):
    try:
        with o.lock:
            y = x.sin()
            raise KeyError('a')
    except KeyError as error: return y, str(error)
def condition(o, x):
    with o.condition:
        o.items.append(x.sin())
        o.condition.notify()
    with o.condition:
        while not o.items: o.condition.wait()
        return o.items.pop(0) + 1
def semaphore(o, x):
    with o.semaphore: return x.sin(), o.semaphore._value
def event(o, x):
    o.event.set()
    y = x + 1 if o.event.is_set() else x
    o.event.clear()
    return y
def through_a_queue(o, x):
    o.queue.put(x.sin())
    return o.queue.get() + o.queue.qsize()
def made(o, x):
    lock, again = threading.Lock(), threading.RLock()
    with lock, again, again: y = x.sin()
    return y, lock.locked()
def made_around(o, x):
    q = queue.Queue()
    q.put(x.sin())
    with threading.Condition() as held, threading.Semaphore(): return q.get(), held
def in_a_generator(o, x):
    def rows():
        with o.lock: yield from x
    return [row + 1 for row in rows()]
"""
NAMES = [line[4 : line.index("(")] for line in PROGRAMS.splitlines() if line.startswith("def ")]
LEAVING = """
def taken(o, x): o.lock.acquire(); return x.sin()
def given_back(o, x): o.lock.release(); return x.cos()
def taken_twice(o, x): o.again.acquire(); o.again.acquire(); return x.sin()
def asked_within(o, x):
    with o.lock:
        y = x.sin()
        o.outside()
        y = y + 1
    return y
def asked_behind(o, x):
    with o.lock: y = x.sin()
    print('free', o.lock.locked())
    return y
def asked_before(o, x):
    o.outside()
    with o.lock: return x.sin()
def raises(o, x):
    with o.lock: return x.reshape(7, 7)
def raises_by_data(o, x):
    with o.lock: return x[o.places]
def made_held(o, x):
    lock = threading.Lock()
    lock.acquire()
    return x.sin(), lock
"""
LEAVING_NAMES = [line[4 : line.index("(")] for line in LEAVING.splitlines() if line.startswith("def ")]
names = {"torch": torch, "threading": threading, "queue": queue, "__name__": "program"}
exec(compile(PROGRAMS + LEAVING, "<locks>", "exec"), names)


def things():
    made = types.SimpleNamespace(lock=threading.Lock(), again=threading.RLock(), condition=threading.Condition(), queue=queue.Queue())
    made.semaphore, made.event, made.items, made.seen, made.n = threading.Semaphore(2), threading.Event(), [], {}, 0
    made.places, made.heard = torch.tensor([5]), []

    def outside():
        made.heard.append(made.lock.locked())

    made.outside = outside
    return made


def told(call, capsys):
    """Results or exceptions of some calls, what is printed, and which locks are held in the end."""
    o, out = things(), []
    for n in (3, 3, 4, 3):
        try:
            out.append(call(o, torch.arange(float(n))))
        except (RuntimeError, IndexError) as error:
            out.append(f"{type(error).__name__}: {error}")
        for lock in (o.lock, out[-1][1] if type(out[-1]) is tuple and hasattr(out[-1][1], "locked") else o.lock):
            out.append(lock.locked())
            if lock.locked() and call.__name__ != "given_back":
                lock.release()
        if call.__name__ == "given_back":
            o.lock.acquire(False)
    out = [tuple(part for part in each if isinstance(part, (bool, int, torch.Tensor))) if type(each) is tuple else each for each in out]
    return out, o.n, list(o.seen), o.heard, repr(o.again).partition(" count=")[2][:2], capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_locks_that_are_free_are_part_of_one_graph(name, capsys):
    breaks: list = []
    compiled = capture(names[name], "eager", on_break=breaks.append)
    want, got = told(names[name], capsys), told(compiled, capsys)
    assert same(want[0], got[0]) and want[1:] == got[1:]
    assert not breaks


@pytest.mark.parametrize("name", LEAVING_NAMES)
def test_locks_that_are_held_where_a_graph_ends(name, capsys):
    want, got = told(names[name], capsys), told(capture(names[name], "eager"), capsys)
    assert same(want[0], got[0]) and want[1:] == got[1:]


@pytest.mark.parametrize("count", [2, 5])
def test_instances_with_a_lock_each_share_a_graph(count):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = capture(names["counted"], backend)
    for o in [things() for _ in range(count)]:
        assert torch.equal(compiled(o, torch.ones(2)), torch.ones(2)) and o.n == 1
    assert len(graphs) == 1


def test_threads_see_each_others_changes():
    o, x = things(), torch.ones(2)
    compiled = capture(names["counted"], "eager")

    def work():
        for _ in range(50):
            compiled(o, x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert o.n == 200 and not o.lock.locked()


def test_one_that_others_hold_is_waited_for_where_the_program_does():
    o, x, results = things(), torch.ones(2), []
    compiled = capture(names["in_a_block"], "eager")
    compiled(o, x)
    with o.lock:
        thread = threading.Thread(target=lambda: results.append(compiled(o, x)))
        thread.start()
        assert not results
    thread.join()
    assert torch.equal(results[0], x.sin() + 1) and not o.lock.locked()


def test_where_others_hold_one_often_the_graph_ends_before():
    o, x, breaks = things(), torch.ones(2), []
    compiled = capture(names["if_it_is_free"], "eager", on_break=breaks.append)
    assert torch.equal(compiled(o, x), x.sin()) and not breaks
    for count in range(MOST_WAITED + 3):
        with o.lock:
            assert compiled(o, x) is x
        assert bool(breaks) == (count >= MOST_WAITED)
        assert torch.equal(compiled(o, x), x.sin()) and not o.lock.locked()
        breaks = breaks and breaks[:1]
    assert {error.what for error in breaks} == {"a lock that is taken"}


class Changes:
    """A lock that is free, where something changes before it is taken."""

    def __init__(self, change):
        self.change, self.times = change, 0

    def acquire(self, blocking=True):
        self.times += 1
        self.change()
        return True

    def release(self):
        self.times -= 1


@pytest.mark.parametrize("kind", ["holds", "does not hold", "raises"])
def test_what_was_assumed_has_to_hold_when_they_are_taken(kind):
    def change():
        if kind == "raises":
            raise KeyboardInterrupt

    locks, first = Locks({0: 2}, set()), Changes(lambda: None)
    locks.check = lambda value: (value,) if kind == "holds" else None
    taking = Taking(locks, (first, Changes(change)), ("value",))
    try:
        with taking as now:
            assert now == (("value",) if kind == "holds" else None)
            assert first.times == 1
            if kind == "holds":
                taking.settle()
    except KeyboardInterrupt:
        assert kind == "raises"
    assert first.times == (2 if kind == "holds" else 0)


def test_nothing_of_the_programs_runs_under_a_lock_that_does_not_do_so_by_itself():
    """An operator of the program that wants the lock itself."""
    o = things()
    library = torch.library.Library("locks_of_tests", "DEF")
    library.define("wants(Tensor x) -> Tensor")

    def wants(x):
        assert o.lock.acquire(timeout=5)
        o.lock.release()
        return x + 1

    library.impl("wants", wants, "CPU")
    library.impl("wants", lambda x: torch.empty_like(x), "Meta")

    def program(x):
        with o.lock:
            y = x.sin()
        return torch.ops.locks_of_tests.wants(y)

    x = torch.ones(2)
    compiled = capture(program, "eager")
    for _ in range(2):
        assert torch.equal(compiled(x), program(x)) and not o.lock.locked()


def test_an_interrupted_graph_leaves_none_held():
    o = things()

    def backend(gm, example_inputs):
        def interrupted(*args):
            assert o.lock.locked()
            raise KeyboardInterrupt

        return interrupted

    compiled = capture(names["in_a_block"], backend)
    with pytest.raises(KeyboardInterrupt):
        compiled(o, torch.ones(2))
    assert not o.lock.locked()
