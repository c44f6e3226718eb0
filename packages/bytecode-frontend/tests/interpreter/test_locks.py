"""Locks that captured code takes: who holds one does so while the program runs. A function of a package that takes one runs as it is."""

from __future__ import annotations

import threading
import types

import pytest
import torch

from conftest import same
from opmill_bytecode_frontend import capture

PACKAGE = """
import threading

LOCK, AGAIN, DONE = threading.Lock(), threading.RLock(), []


def once(name):
    if name in DONE:
        return len(DONE)
    with LOCK, AGAIN:
        assert LOCK.locked()
        for k in range(3):
            DONE.append(f"{name}{k}" if k else name)
    return len(DONE)


def acquired(name):
    LOCK.acquire()
    try:
        DONE.append(name)
    finally:
        LOCK.release()
    return len(DONE)


def through(name):
    return once(name) + 1


def raises(name):
    with LOCK:
        raise KeyError(name)
"""
LOCK = threading.Lock()


@pytest.fixture
def package():
    made = types.ModuleType("package")
    exec(compile(PACKAGE, "/somewhere/site-packages/package.py", "exec"), vars(made))
    return made


def caught(call, name):
    try:
        return call(name)
    except KeyError as error:
        return str(error)


@pytest.mark.parametrize("name", ["once", "acquired", "through", "raises"])
def test_a_function_of_a_package_that_takes_one_runs_as_it_is(package, name):
    def f(x):
        y = x.sin()
        told = caught(getattr(package, name), "a")
        return y * 2, told, list(package.DONE)

    x = torch.ones(3)
    want = [f(x) for _ in range(3)]
    package.DONE.clear()
    breaks: list = []
    compiled = capture(f, "eager", on_break=breaks.append)
    assert same(want, [compiled(x) for _ in range(3)])
    assert {error.what for error in breaks} == {"a lock that is taken"} and len(breaks) <= 3  # one at a call
    assert not package.LOCK.locked()

    package.DONE.clear()
    alone = capture(getattr(package, name), "eager")
    assert [caught(alone, "a") for _ in range(3)] == [told for _, told, _ in want]


def test_a_program_holds_its_own_around_its_operators():
    held = []

    def f(x):
        y = x.sin()
        with LOCK:
            y = y * 2
            held.append(LOCK.locked())
        return y + 1, LOCK.locked()

    x, graphs = torch.ones(3), []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    want, got = f(x), capture(f, backend)(x)
    assert same(want, got) and held == [True, True] and len(graphs) == 3
