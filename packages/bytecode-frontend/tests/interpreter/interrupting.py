"""A program that a signal's handler interrupts at one moment after the other, while it is captured and while it runs captured.

usage: interrupting.py BASE MOMENTS

The moments are counted in calls that Python makes, where it looks for signals: BASE is the class of the handler's exception's base. What is
printed at the end: how often the exception arrived where the program waits for it, and how often it was lost on the way.
"""

from __future__ import annotations

import builtins
import gc
import signal
import sys
import threading
from types import FrameType
from typing import Any, Callable

import torch

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.eval_frame import is_installed

TEXT = """
def turns(n):
    for i in range(n):
        yield i

def helper(value, depth):
    opaque(value)
    return helper(value, depth - 1) + [depth] if depth else [value]

def function(x, table, key):
    found = []
    for i, (name, value) in enumerate(table.items()):
        try:
            found.append(helper(value, 1))
            if i == 1:
                raise KeyError(name)
        except KeyError as error:
            opaque(error)
        finally:
            found.append(name == key)
    with torch.no_grad():
        y = opaque(x + 1) * 2
    found += [sum(turns(3)), sorted(table, key=lambda each: str(each))]
    return y, repr(found), key == Key(3)
"""


class Key:
    """Whose comparisons run in guards."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"Key({self.value})"


@torch.compiler.disable
def opaque(value: Any) -> Any:
    return value


def function() -> Callable[..., Any]:
    """A new one, of which nothing is known yet."""
    names = {"opaque": opaque, "Key": Key, "torch": torch}
    exec(TEXT, names)
    return names["function"]  # type: ignore[return-value]


class Interrupted:
    """Raises the signal at a count of calls, once; counts them where the count is 0."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.calls = at, 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event in ("call", "c_return"):
            self.calls += 1
            if self.calls == self.at:
                signal.raise_signal(signal.SIGALRM)

    def __enter__(self) -> Interrupted:
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def run(program: Callable[..., Any]) -> Any:
    return program(torch.ones(2), {"a": 1, Key(2): 2, 3: 3}, Key(3))


def state() -> tuple[object, ...]:
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return is_installed(), gc.isenabled(), torch._C._len_torch_dispatch_stack(), hooks


def main() -> None:
    base, moments = getattr(builtins, sys.argv[1]), int(sys.argv[2])
    stop = type("Stop", (base,), {})

    def handler(*_: object) -> None:
        raise stop

    signal.signal(signal.SIGALRM, handler)
    want, before, arrived, lost = repr(run(function())), state(), 0, 0
    run(capture(function(), "eager"))
    counts = []
    program = capture(function(), "eager")
    for _ in range(2):  # the capture, and a call of what is captured
        with Interrupted() as counting:
            run(program)
        counts.append(counting.calls)
    for number, count in enumerate(counts):
        for moment in range(moments):
            program = capture(function(), "eager")
            if number:
                run(program)
            try:
                with Interrupted(1 + moment * count // moments):
                    got = repr(run(program))
            except stop:
                arrived += 1
            else:
                lost += 1
                assert got == want, (moment, got)
            torch.set_grad_enabled(True)  # no_grad() leaves it off where it is interrupted, in plain Python as well
            assert state() == before, (number, moment, state())
            other = threading.Thread(target=lambda: asserted(program, want), daemon=True)
            other.start()
            other.join(60)
            assert not other.is_alive(), (number, moment, "a lock is kept")
            assert FAILED == [], (number, moment, FAILED)
    print(arrived, lost)


FAILED: list[object] = []


def asserted(program: Callable[..., Any], want: str) -> None:
    for _ in range(2):
        got = repr(run(program))
        if got != want:
            FAILED.append(got)


if __name__ == "__main__":
    main()
