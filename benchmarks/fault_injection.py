"""Something fails at the nth time while a model is compiled, for each n: the call gives eager's result or says what failed, and the next
compile is as good as if nothing had happened.

    python benchmarks/fault_injection.py                        # every call of the system, three models
    python benchmarks/fault_injection.py memory --every 5000    # one allocation of Python's, a sample
    python benchmarks/fault_injection.py burst --every 5000     # the same, and the 500 behind it
    python benchmarks/fault_injection.py limit                  # memory of the process (RLIMIT_AS), a quarter of a MiB more each time
    python benchmarks/fault_injection.py own                    # one allocation of opmill's own native code, and of its kernels
    python benchmarks/fault_injection.py native --every 5000    # one of malloc's, posix_memalign's or mmap's, whoever calls it

Each n runs in a process of its own, forked from one that has imported what compiling needs (``--cold``: from one that has not, so that
imports fail as well). A process that torch, glibc or CPython end themselves where ``malloc`` gives nothing is noted, and is no fault of
opmill's."""

from __future__ import annotations

import argparse
import errno
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import opmill
from native_faults import NativeMemory, blamed, is_ours, start_again
from opmill.compile import record_of
from opmill_fake_tensors.passing import out_of_memory

EVENTS = frozenset(
    """open os.mkdir os.rename os.remove os.rmdir os.listdir os.scandir os.truncate os.chmod os.link os.symlink os.utime subprocess.Popen
    os.posix_spawn os.fork ctypes.dlopen fcntl.flock tempfile.mkstemp tempfile.mkdtemp mmap.__new__""".split()
)
"""Audit events of CPython that come before a call of the system."""
ERRNOS = (errno.ENOMEM, errno.EMFILE, errno.ENOSPC, errno.EAGAIN)
BOUND_S = 240
LAST_UNIT = 400


class Injected(OSError):
    """What fails."""


def mlp() -> tuple[torch.nn.Module, torch.Tensor]:
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)), torch.randn(3, 8)


def convolutions() -> tuple[torch.nn.Module, torch.Tensor]:
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(8 * 16, 5)).eval(), torch.randn(2, 3, 8, 8)


def transformer() -> tuple[torch.nn.Module, torch.Tensor]:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
    return layer.train(), torch.randn(2, 5, 16)


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {
    "mlp": mlp, "convolutions": convolutions, "transformer": transformer
}  # fmt: skip


class Calls:
    """The nth call of the system fails, by CPython's audit events."""

    def __init__(self) -> None:
        self.count, self.at, self.armed, self.where = 0, 0, False, ""
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if self.armed and event in EVENTS:
            self.count += 1
            if self.count == self.at:
                code = ERRNOS[self.at % len(ERRNOS)]
                self.where = f"{event} {str(args[0])[-60:] if args else ''}"
                raise Injected(code, os.strerror(code))

    def arm(self, at: int) -> None:
        self.count, self.at, self.armed = 0, at, True

    def disarm(self) -> None:
        self.armed = False


class Memory:
    """The nth allocation of Python's allocators fails, with ``length`` - 1 behind it. (Where all behind it fail, CPython 3.11 itself never
    ends: its handlers of exceptions allocate.)"""

    def __init__(self, length: int) -> None:
        import _testcapi

        self._capi, self._length, self.where = _testcapi, length, ""

    def arm(self, at: int) -> None:
        if at:
            self._capi.set_nomemory(at, at + self._length)

    def disarm(self) -> None:
        self._capi.remove_mem_hooks()


class AddressSpace:
    """The process, and the compilers that it starts, may have so many units of memory more than it has; then the limit is lifted."""

    UNIT = 1 << 18

    def __init__(self) -> None:
        self._before, self.where = resource.getrlimit(resource.RLIMIT_AS), ""

    def arm(self, at: int) -> None:
        if at:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + at * self.UNIT, self._before[1]))

    def disarm(self) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self._before)


FAULTS: dict[str, Callable[[], Any]] = {
    "calls": Calls, "memory": lambda: Memory(1), "burst": lambda: Memory(500), "limit": AddressSpace,
    "own": lambda: NativeMemory(True), "native": lambda: NativeMemory(False), "native burst": lambda: NativeMemory(False, 50),
}  # fmt: skip
NATIVE = ("own", "native", "native burst")


def graphs(compiled: Any) -> list[tuple[Any, ...]]:
    """What was compiled, and how well."""
    found = record_of(compiled)
    assert found is not None
    return [(g.operators, g.fallback, g.report and (g.report.kernels, g.report.launches, g.report.operators_only)) for g in found[1].graphs]


def clean(error: BaseException) -> bool:
    """Whether an exception is the injected one, or comes of it."""
    if out_of_memory(error):
        return True
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, (MemoryError, Injected)):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return False


def attempt(
    fault: Any, make: Callable[[], tuple[torch.nn.Module, torch.Tensor]], at: int, wanted: list[Any] | None
) -> tuple[str, list[Any]]:
    """What is wrong (empty: nothing) when the fault comes at ``at`` (0: never), and what a fresh model compiled to after it."""
    torch.manual_seed(0)
    model, x = make()
    expected = model(x).detach()
    compiled = opmill.compile(model)
    got, failure = None, None
    fault.arm(at)
    try:
        got = compiled(x)
    except BaseException as error:
        failure = error
    finally:
        fault.disarm()
    if failure is not None and not clean(failure):
        return "not a clean error: " + "".join(traceback.format_exception(failure)), []
    fresh = opmill.compile(make()[0].train(model.training))
    fresh.load_state_dict(model.state_dict())
    for what, result in (("result", got), ("result of the next call", compiled(x)), ("result of the next compile", fresh(x))):
        if result is not None and not torch.allclose(result, expected, atol=1e-4, rtol=1e-4):
            return f"wrong {what}", []
    made = graphs(fresh)
    if wanted is not None and made[-len(wanted) :] != wanted:  # what failed after a graph was compiled has it compiled again
        return f"the next compile gave {made}, not {wanted}", made
    return "", made


def in_child(body: Callable[[], str]) -> str:
    """What ``body`` says in a forked child: "" where all is well. Says so as well where it crashes, or never ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 2)  # where native code tells of its end
        signal.alarm(BOUND_S)
        said = "did not say anything"
        try:
            said = body()
        except BaseException:
            said = "raised " + traceback.format_exc()
        finally:
            os.write(writing, b"\0\0" + said.encode()[-60_000:])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        return f"ended by signal {-status} in {blamed(said)}\n{said}"
    return said.rpartition("\0\0")[2].rstrip("\0")


def one(kind: str, model: str, at: int, wanted: list[Any] | None = None) -> str:
    """What is wrong, in a child, with a folder for the cache of its own."""

    def body() -> str:
        folder = tempfile.mkdtemp(prefix="opmill-faults-")
        os.environ["OPMILL_CACHE_DIR"] = folder
        warnings.simplefilter("ignore")
        try:
            fault = FAULTS[kind]()
            said, made = attempt(fault, MODELS[model], at, wanted)
            if at == 0:
                return repr((getattr(fault, "count", 0), made))
            return f"{fault.where}: {said}" if said else ""
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return in_child(body)


def baseline(kind: str, model: str) -> tuple[int, list[Any]]:
    """How many chances to fail there are (0: not known), and what is compiled without a fault."""
    said = one(kind, model, 0)
    try:
        count, made = eval(said, {"__builtins__": {}})  # written by our own child
    except SyntaxError:
        raise RuntimeError(said) from None
    return count, made


def last_allocation(model: str, step: int) -> int:
    """An n so large that nothing fails, found by doubling: a call without a failing allocation is the first one that is compiled."""
    at = step
    while at < 1 << 26:
        if in_child(lambda at=at: "reached" if _reached(model, at) else ""):
            at *= 2
        else:
            return at
    return at


def _reached(model: str, at: int) -> bool:
    import _testcapi

    folder = tempfile.mkdtemp(prefix="opmill-faults-")
    os.environ["OPMILL_CACHE_DIR"] = folder
    made, x = MODELS[model]()
    compiled = opmill.compile(made)
    _testcapi.set_nomemory(at, at + 1)
    try:
        compiled(x)
    except BaseException:
        return True
    finally:
        _testcapi.remove_mem_hooks()
        shutil.rmtree(folder, ignore_errors=True)
    return not graphs(compiled)


def warm() -> None:
    """Imports what compiling needs."""
    with tempfile.TemporaryDirectory(prefix="opmill-faults-") as folder:
        os.environ["OPMILL_CACHE_DIR"] = folder
        model, x = mlp()
        opmill.compile(model)(x).sum().backward()
    opmill.reset()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=sorted(FAULTS), default="calls")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--every", type=int, default=1, help="a sample of the places")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--last", type=int, default=0, help="the last place; 0: found out")
    parser.add_argument("--cold", action="store_true", help="imports fail as well")
    chosen = parser.parse_args()
    if chosen.kind in NATIVE:
        start_again()
    torch.set_num_threads(1)
    if not chosen.cold:
        warm()
    bad = tried = 0
    noted: Counter[str] = Counter()
    for model in chosen.models:
        count, wanted = baseline(chosen.kind, model)
        last = chosen.last or count or (LAST_UNIT if chosen.kind == "limit" else last_allocation(model, 1 << 14))
        start = time.perf_counter()
        for at in range(chosen.first, last + 1, chosen.every):
            tried += 1
            said = one(chosen.kind, model, at, wanted)
            if chosen.kind in NATIVE and said.startswith("ended by signal") and not is_ours(blamed(said.partition("\n")[2])):
                noted.update([said.partition("\n")[0].partition("(")[0]])
                continue
            if said:
                bad += 1
                print(f"{model}, {chosen.kind} {at} of {last}: {said}", flush=True)
        print(f"{model}: up to {last}, {time.perf_counter() - start:.0f} s", flush=True)
    for what, times in noted.items():
        print(f"{times} times not ours: {what}")
    print(f"{tried} faults, {bad} not survived")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
