"""What a program that was compiled may suffer from besides wrong numbers, and how each is seen: it dies or hangs, is slow, or keeps memory.

Each symptom compares two ways to run the same thing, eager and compiled, and gives a verdict of the form that ``opmill.check`` gives."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import select
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from msgspec import Struct
from torch.utils import _pytree as pytree

from ..errors import UsageValueError
from .check import Checked, Compared, backward_of

Run = Callable[[], Any]
"""One call of what is looked at; the first one compiles, where it is the compiled way."""
Judge = Callable[[Run, Run], Checked]
"""``judge(eager, compiled)``."""

_PATIENCE_S = 120.0
"""After which a call counts as hanging."""
_SLOWER = 1.5
"""How many times eager's time counts as slow."""
_STARTS_S = 20e-6
"""What a call of the smallest graphs may cost more than eager: they are not what is looked for."""
_TURNS = 7
_CALLS = 4
"""In a round of those that show what is kept."""
_KEPT = 512
"""Bytes a call may keep: what Python itself does with freed lists and dictionaries."""
_FREED_BY_OTHERS = 1
"""In so many of the rounds something else of the process may free more than is kept; the counters are the process's."""


class Ended(Struct, frozen=True):
    """How a child process ended. ``problem``: empty where it came to its end; ``said``: the lines it wrote."""

    problem: str
    said: tuple[str, ...]


def apart(run: Callable[[Callable[[str], None]], object], patience: float = _PATIENCE_S) -> Ended:
    """Calls ``run(say)`` in a child of this process, which may die of it; what it says by ``say(line)`` is known even then.

    The child computes in one thread: those of its parent are not there. Raises ValueError (OM025) where this process uses CUDA, whose state
    no child inherits, and where there is no fork."""
    if not hasattr(os, "fork") or torch.cuda.is_initialized():
        raise UsageValueError(
            "OM025",
            "what kills a process cannot be looked for in a child of this one",
            why="it uses CUDA already" if hasattr(os, "fork") else "this system has no fork",
            hint="call opmill.bisect(..., of='crash') on CPU tensors, or opmill.bundle(f)(*args) and opmill.replay in a process of its own",
        )
    sys.stdout.flush(), sys.stderr.flush()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        _run_in_child(run, ours, theirs)
    os.close(theirs)
    text, hangs = _read(ours, patience)
    os.close(ours)
    if hangs:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    said = text.splitlines()
    if hangs:
        return Ended(f"it does not end within {patience:g} s", tuple(said))
    if os.WIFSIGNALED(status):
        return Ended(f"the process dies of {signal.Signals(os.WTERMSIG(status)).name}", tuple(said))
    if said and said[-1] == _WHOLE:
        return Ended("", tuple(said[:-1]))
    return Ended(f"the process ends with exit code {os.waitstatus_to_exitcode(status)}", tuple(said))


_WHOLE = "-- came to its end --"


def _run_in_child(run: Callable[[Callable[[str], None]], object], ours: int, theirs: int) -> None:
    def say(line: str) -> None:
        os.write(theirs, f"{line}\n".encode())

    os.close(ours)
    try:
        for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT):
            signal.signal(number, signal.SIG_DFL)
        torch.set_num_threads(1)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        try:
            run(say)
        except Exception:
            pass  # an exception is no crash: the other symptom tells of it
        say(_WHOLE)
    finally:
        os._exit(0)


def _read(pipe: int, patience: float) -> tuple[str, bool]:
    """What comes through a pipe until it is closed, and whether it was not within ``patience`` seconds."""
    parts: list[bytes] = []
    end = time.monotonic() + patience
    while (left := end - time.monotonic()) > 0:
        ready, _, _ = select.select([pipe], [], [], left)
        if ready:
            if not (part := os.read(pipe, 1 << 16)):
                return b"".join(parts).decode(errors="replace"), False
            parts.append(part)
    return b"".join(parts).decode(errors="replace"), True


def dies(_: Run, compiled: Run) -> Checked:
    """Whether a compiled call ends its process, or never ends."""
    return _verdict("the process", apart(lambda _: once(compiled)).problem)


def is_slow(eager: Run, compiled: Run) -> Checked:
    """Whether compiled calls take longer than eager ones: the fastest of some of each, taken in turns."""
    for run in (eager, compiled):
        for _ in range(2):
            once(run)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(_TURNS):
        for run, found in zip((eager, compiled), times, strict=True):
            found.append(seconds(functools.partial(once, run)))
    theirs, ours = map(min, times)
    slow = ours > _SLOWER * theirs + _STARTS_S
    return _verdict("time", f"{ours * 1e6:.0f} us, eager {theirs * 1e6:.0f} us" if slow else "")


def differs(eager: Run, compiled: Run) -> Checked:
    """Whether compiled calls give other results from time to time, where eager ones never do: threads that meet in one place. More of them
    than there are processors are interrupted wherever they are."""
    with many_threads():
        ours = _first_other(compiled, _MOST_CALLS)
        theirs = _first_other(eager, _EAGERS_CALLS) if ours else 0
    return _verdict("results", f"call {ours} gives others than the first" if ours and not theirs else "")


@contextlib.contextmanager
def many_threads() -> Iterator[None]:
    """Operators and kernels run in more threads than there are processors, so that those that meet in one place are seen to."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(before, _CROWD))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _first_other(run: Run, most: int) -> int:
    """The first call with other results than those of the first one; 0 where some seconds of calls give none."""
    first, end = _results(run), time.monotonic() + _CROWDED_S
    for number in range(2, most + 1):
        if not alike(first, _results(run)):
            return number
        if time.monotonic() > end:
            break
    return 0


def _results(run: Run) -> list[torch.Tensor]:
    torch.manual_seed(0)
    found = [t for t in pytree.tree_leaves(run()) if isinstance(t, torch.Tensor)]
    return [t.detach().clone() for t in found]


def alike(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Whether tensors hold the same bits, NaN being like NaN."""
    return all(torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in zip(first, second, strict=True))


_CROWD = 16
"""Threads."""
_MOST_CALLS = 400
_EAGERS_CALLS = 20
_CROWDED_S = 4.0


def keeps_memory(eager: Run, compiled: Run) -> Checked:
    """Whether each compiled call leaves memory behind that eager ones do not; on GPUs also whether its peak is higher."""
    theirs, ours = max(0.0, statistics.median(_growth(eager))), sorted(_growth(compiled))[_FREED_BY_OTHERS]
    if ours - theirs > _KEPT:
        return _verdict("memory", f"each call keeps {ours:.0f} bytes, of eager {theirs:.0f}")
    if torch.cuda.is_initialized() and (high := _peak(compiled)) > _SLOWER * (low := _peak(eager)):
        return _verdict("memory", f"at most {high} bytes, in eager {low}")
    return _verdict("memory", "")


def _growth(run: Run) -> list[float]:
    """Bytes that are left behind by each call, in some rounds of calls: a cache that grows once, of Python or of another thread, shows in
    one of them, and what each call keeps in all but those in which another part of the process frees as much."""
    for _ in range(3):
        once(run)
    rounds = []
    for _ in range(_TURNS):
        gc.collect()
        before = _in_use()
        for _ in range(_CALLS):
            once(run)
        gc.collect()
        rounds.append((_in_use() - before) / _CALLS)
    return rounds


class _Malloc(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def _in_use() -> int:
    """Bytes that are allocated now, by C and on GPUs."""
    on_devices = torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        raise UsageValueError(
            "OM026", "this system does not say how much memory is allocated", hint="it takes glibc 2.33 or newer"
        ) from None
    ask.restype = _Malloc
    told = ask()
    return int(told.uordblks + told.hblkhd) + on_devices


def _peak(run: Run) -> int:
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_allocated()
    once(run)
    return torch.cuda.max_memory_allocated() - start


def once(run: Run) -> None:
    """A call, and the backward of what it returns where that requires grad, unless the program has taken its gradients itself."""
    results = [t for t in pytree.tree_leaves(run()) if isinstance(t, torch.Tensor) and t.requires_grad]
    if results and torch.is_grad_enabled():
        backward_of(results, [torch.ones_like(t) for t in results])


def seconds(run: Run) -> float:
    """Seconds of a call, until GPUs have done what it started."""
    _wait()
    start = time.perf_counter()
    run()
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _verdict(name: str, problem: str) -> Checked:
    return Checked((Compared(name, problem=problem),))


SYMPTOMS: dict[str, Judge | None] = {"numbers": None, "crash": dies, "time": is_slow, "memory": keeps_memory, "race": differs}
"""By the name that ``opmill.bisect(of=...)`` is given; None: what ``opmill.check`` compares."""

__all__ = ["SYMPTOMS", "Ended", "Judge", "Run", "alike", "apart", "many_threads", "once", "seconds"]
