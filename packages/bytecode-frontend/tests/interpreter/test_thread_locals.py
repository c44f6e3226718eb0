"""``threading.local``: each thread has attributes of its own, and captured code reads and writes those of the thread that runs it."""

from __future__ import annotations

import threading

import pytest
import torch

from conftest import same
from opmill_bytecode_frontend import capture


class Derived(threading.local):
    kind = "derived"

    def __init__(self, level=1):
        self.level, self.stack = level, [2]

    @property
    def top(self):
        return self.stack[-1]

    @top.setter
    def top(self, value):
        self.stack[-1] = value


class Slotted(threading.local):
    __slots__ = ("shared",)


def assigned(x, state):
    state.x, state.n = x * 2, 3
    return state.x + state.n


def counted(x, state):
    if not hasattr(state, "depth"):
        state.depth = 0
    state.depth += 1
    return x * state.depth


def deleted(x, state):
    state.depth = 1
    y = x * state.depth
    del state.depth
    return y, getattr(state, "depth", None)


def missing(x, state):
    try:
        return x * state.nothing
    except AttributeError as error:
        return x, str(error)


def nothing_to_delete(x, state):
    try:
        del state.nothing
    except AttributeError as error:
        return x, str(error)


def listed(x, state):
    state.a = 1
    state.__dict__["b"] = 2
    return x, sorted(vars(state)), state.a + state.b


def of_its_class(x, state):
    if isinstance(state, Derived):
        state.stack.append(4)
        state.top += state.level
        return x * state.top, state.kind
    return x, type(state).__name__


def shared_by_threads(x, state):
    if isinstance(state, Slotted):
        state.shared = getattr(state, "shared", 0) + 1
        return x * state.shared
    return x


def through_its_dictionary(x, state):
    state.__dict__.setdefault("found", []).append(x.shape[0])
    state.__dict__["other"] = 1
    vars(state)["third"] = len(state.found)
    return x * len(state.__dict__), sorted(vars(state)), state.third + state.other


def read_from_its_dictionary(x, state):
    return x * 2, state.__dict__.get("found"), "level" in state.__dict__, list(vars(state).items())


CASES = [
    through_its_dictionary,
    read_from_its_dictionary,
    assigned,
    counted,
    deleted,
    missing,
    nothing_to_delete,
    listed,
    of_its_class,
    shared_by_threads,
]


def in_threads(f, make):
    state, found = make(), []

    def run():
        for _ in range(3):
            found.append(f(torch.ones(2), state))
        found.append(dict(state.__dict__))

    for where in ("here", "there", "here"):
        if where == "here":
            run()
        else:
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
    return found


@pytest.mark.parametrize("make", [threading.local, Derived, lambda: Derived(level=5), Slotted], ids=["plain", "derived", "given", "slots"])
@pytest.mark.parametrize("case", CASES)
def test_as_plainly(case, make):
    assert same(in_threads(case, make), in_threads(capture(case, "eager", fullgraph=True), make))
