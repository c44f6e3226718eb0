"""``threading.get_ident()``: compared with numbers of before, as a key, in other threads; and ``id()`` compared with a number of before."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


class Holder:
    def __init__(self) -> None:
        self.owner, self.names, self.nothing, self.word = get_ident(), {get_ident(): "mine"}, id(None), id("word")


HOLDER = Holder()


def compares(it: Holder) -> Any:
    return it.owner == get_ident(), get_ident() != it.owner, get_ident() == 0, get_ident() == "a", get_ident() == get_ident()


def finds(it: Holder) -> Any:
    return it.names.get(get_ident()), get_ident() in it.names, get_ident() in [1, it.owner], {get_ident(): 2}.get(it.owner)


def asks_who(it: Holder) -> Any:
    return threading.current_thread() is threading.main_thread()


def addresses(it: Holder) -> Any:
    return id(None) == it.nothing, it.nothing != id(None), id("word") == it.word, id(it) == id(it)


@pytest.mark.parametrize("program", [compares, finds, asks_who, addresses])
def test_numbers_of_before(program: Any) -> None:
    compiled, told = capture(program, "eager"), list[tuple[Any, Any]]()

    def call() -> None:
        told.append((compiled(HOLDER), program(HOLDER)))

    call()
    other = threading.Thread(target=call)
    other.start()
    other.join()
    call()
    assert [ours for ours, _ in told] == [plain for _, plain in told]


def test_what_differs_between_threads_costs_no_capture_each() -> None:
    captured = []
    compiled = capture(lambda holder, x: x + 1 if get_ident() != holder else x - 1, lambda gm, inputs: captured.append(gm) or gm.forward)
    x = torch.ones(2)
    for _ in range(4):
        thread = threading.Thread(target=compiled, args=(0, x))
        thread.start()
        thread.join()
    assert len(captured) == 1


# --- a lock that a thread may take again ----------------------------------------------------------------------------------------------


class Once:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        assert self.lock.acquire(blocking=False), "taken already: this would wait for ever"

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class Owner:
    def __init__(self) -> None:
        self.current = 0

    def __enter__(self) -> None:
        self.current = get_ident()

    def __exit__(self, *_: object) -> None:
        self.current = 0


@contextmanager
def entered(*managers: Any) -> Any:
    with ExitStack() as stack:
        for each in managers:
            stack.enter_context(each)
        yield


class Machine:
    def __init__(self) -> None:
        self.owner = Owner()
        self.managers = [Once(), self.owner]
        self.said: list[str] = []

    def locked(self, function: Any) -> Any:
        if self.owner.current != get_ident():
            with entered(*self.managers):
                return function()
        return function()

    def outer(self) -> Any:
        print(end="")
        return self.locked(self.inner)

    def inner(self) -> int:
        self.said.append("inner")
        return len(self.said)


def runs() -> Any:
    machine = Machine()
    return machine.locked(machine.outer), machine.locked(machine.inner), machine.owner.current


def test_a_lock_is_taken_once() -> None:
    compiled = capture(runs, "eager")
    assert [compiled(), compiled()] == [runs(), runs()]
