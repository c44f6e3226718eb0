"""Random Python programs under compile, against the plain run: results, exceptions, what is noted, printed and changed, identities.

``python benchmarks/fuzz_python.py [--seed 0] [--count 1000] [--jobs 1] [--only SEED] [--shrink] [--file PROGRAM]``

Each program is called five times, with arguments that differ, on a state that goes on; the graphs run as they are (``backend="eager"``).
Seeds run in processes of their own, so that one that crashes or hangs is a result. A difference is printed with its seed and, with
``--shrink``, with the program made smaller. ``--file`` runs a program that was saved.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import gc
import io
import itertools
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import opmill
from processes import telling
from random_python import random_python

HERE = Path(__file__).resolve()
SECONDS = 20.0
NAME, MODULE = "<random>", "drawn_program"
CALLS = (
    (3, 2, [1, 5, 3], {"a": 1, "b": 2}, "abc"),
    (3, 2, [1, 5, 3], {"a": 1, "b": 2}, "abc"),
    (3, 3, [1, 5, 3], {"a": 1, "b": 2}, "abc"),
    (4, 3, [4, 4, 0, 2], {"b": 2, "c": 0}, "b1"),
    (3, 0, [], {}, ""),
)


class TooLong(BaseException):
    """A program that takes longer than ``SECONDS``."""


class Shown:
    """Texts of values: two programs' values with equal texts are alike, identities of what can change included."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []

    def __call__(self, value: Any) -> str:
        kind = type(value)
        if kind in (int, float, bool, str, bytes, complex, type(None), type(NotImplemented), type(Ellipsis), range):
            return repr(value) if kind is not int or abs(value) < 10**30 else "large"
        if isinstance(value, type):
            return f"class {value.__qualname__}"
        if kind in (tuple, frozenset, slice) and kind is not slice:
            return f"{kind.__name__}({', '.join(self.items(value))})"
        if id(value) in self.seen:
            return f"#{self.seen[id(value)]}"
        self.kept.append(value)
        self.seen[id(value)] = len(self.seen)
        return f"{kind.__qualname__}#{self.seen[id(value)]}{self.inside(value)}"

    def items(self, value: Any) -> Iterator[str]:
        plain = [each for each in value if not isinstance(each, (int, float, str, bool, tuple, type(None)))]
        return iter(sorted(map(self, value))) if plain and isinstance(value, (set, frozenset)) else map(self, value)

    def inside(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"({value.dtype}, {list(value.shape)}, {value.tolist()}, {value.requires_grad}, {value._version})"
        if isinstance(value, types.FunctionType):
            return (
                f"({value.__qualname__}, {self(value.__defaults__)}, {self(value.__kwdefaults__)}, {self(vars(value).get('__wrapped__'))})"
            )
        if isinstance(value, types.MethodType):
            return f"({value.__func__.__qualname__}, {self(value.__self__)})"
        if isinstance(value, BaseException):
            return f"({self.raised(value)})"
        if isinstance(value, dict):
            text = ", ".join(f"{self(key)}: {self(each)}" for key, each in dict.items(value))
            factory = self(value.default_factory) if isinstance(value, collections.defaultdict) else ""
            return f"{{{text}}}{factory}{self.names(value)}"
        if isinstance(value, (list, set, tuple, collections.deque)):
            iterate = next(each.__iter__ for each in type(value).__mro__ if each.__module__ in ("builtins", "collections"))
            return f"[{', '.join(self.items(list(iterate(value)) if not isinstance(value, set) else set(set.__iter__(value))))}]{self.names(value)}"
        if isinstance(value, collections.abc.Iterator) and type(value).__module__ in ("builtins", "itertools"):
            return f"({self.rest(value)})"
        if type(value).__module__ in ("builtins", "functools"):
            return f"({getattr(value, '__qualname__', '')})"
        return self.names(value)

    def rest(self, value: Any) -> str:
        """What is left in an iterator, which is used up thereby."""
        try:
            return ", ".join(map(self, itertools.islice(value, 12)))
        except Exception as error:
            return f"raises {self(error)}"

    def names(self, value: Any) -> str:
        found = dict(getattr(value, "__dict__", {})) if type(value).__module__ not in ("builtins", "collections") else {}
        for each in type(value).__mro__ if type(value).__module__ == MODULE else ():
            for name in vars(each).get("__slots__", ()):
                with contextlib.suppress(AttributeError):
                    found[name] = vars(each)[name].__get__(value)
        return f"<{', '.join(f'{name}={self(each)}' for name, each in found.items())}>" if found else ""

    def raised(self, error: BaseException) -> str:
        parts = [self(error.args), self.names(error)]
        if isinstance(error, BaseExceptionGroup):
            parts.append(self(error.exceptions))
        parts += [
            f"notes {getattr(error, '__notes__', None)}",
            f"{error.__suppress_context__}",
            f"cause {self(error.__cause__)}",
            f"context {self(error.__context__)}",
        ]
        frames = [f"{each.name}:{self.line(error, each)}" for each in traceback.extract_tb(error.__traceback__) if each.filename == NAME]
        return ", ".join([*parts, f"at {frames[-1:]}"])

    def line(self, error: BaseException, at: traceback.FrameSummary) -> object:
        """Python 3.11 joins a read of a local variable with the instruction before once code is warm, and then names that one's line."""
        return "?" if isinstance(error, UnboundLocalError) and sys.version_info < (3, 12) else at.lineno


def namespace(source: str) -> dict[str, Any]:
    """The names of a program, with the functions that it is given: those of a module, in which its classes are looked for."""
    module = sys.modules[MODULE] = types.ModuleType(MODULE)
    names, noted = vars(module), []
    names["NOTED"] = noted

    @opmill.disable
    def B(*values: Any) -> Any:
        noted.append(Shown()(values))
        return values[0] if values else None

    @opmill.disable
    def Bmut(value: Any) -> None:
        value.update(m=9) if isinstance(value, dict) else value.append(9)

    @opmill.disable
    def Bcall(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    @opmill.disable
    def Braise(k: int) -> None:
        if k > 3:
            raise ValueError(k)

    names.update(B=B, Bmut=Bmut, Bcall=Bcall, Braise=Braise)
    exec(compile(source, NAME, "exec"), names)
    return names


def ran(source: str, compiled: bool) -> list[str]:
    """What each call gives and leaves."""
    names = namespace(source)
    program = names["program"]
    function = opmill.compile(program, backend="eager") if compiled else program
    found = []
    for size, n, items, mapping, word in CALLS:
        arguments = (torch.arange(float(size)) - 1, n, list(items), dict(mapping), word)
        shown, out = Shown(), io.StringIO()
        shown(arguments)
        gc.disable()  # which would end what is left in cycles at any time, of a compile too
        try:
            with contextlib.redirect_stdout(out):
                result = function(*arguments)
            text = f"gave {shown(result)}"
        except Exception as error:
            text = f"raised {shown(error)}"
            error.__traceback__ = None
        text += f"\narguments {Shown()(arguments)}\nprinted {out.getvalue()!r}\nnoted {names['NOTED']}"
        text += "\nglobals " + ", ".join(f"{name}={shown(names[name])}" for name in ("LOG", "STATE", "SHARED", "COUNT", "TEXT"))
        text += f"\ngrad mode {torch.is_grad_enabled()}"
        torch.set_grad_enabled(True)
        found.append(text)
        gc.enable()
        if "__del__" in source or "yield" in source:  # what is left in cycles ends now, and is no matter of the next call
            result = arguments = shown = None
            gc.collect()
        del names["LOG"][:], names["NOTED"][:], names["WATCHED"][:]
    return found


def timed(function: Callable[[], Any]) -> Any:
    def late(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        return function()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def difference(source: str) -> tuple[str, str]:
    """A verdict ("right", "skipped", "wrong", "crash", "late") and what differs."""
    sys.unraisablehook = lambda unraisable: None  # generators that are dropped say on their way what they meet
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            plain = timed(lambda: ran(source, False))
        except (TooLong, Exception) as error:
            return "skipped", repr(error)[:100]
        try:
            ours = timed(lambda: ran(source, True))
        except TooLong:
            return "late", ""
        except Exception as error:
            return "crash", "".join(traceback.format_exception(error))
        finally:
            gc.collect() if gc.get_count()[2] > 50 else None
    for call, (want, got) in enumerate(zip(plain, ours, strict=True)):
        if want != got:
            lines = [f"  {w[:1500]}\n  {g[:1500]}" for w, g in zip(want.splitlines(), got.splitlines()) if w != g]
            return "wrong", f"call {call}, plain and compiled\n" + "\n".join(lines)
    return "right", plain[0]


# --- smaller programs ---------------------------------------------------------------------------------------------------------------


def depth(line: str) -> int:
    return (len(line) - len(line.lstrip())) // 4


def smaller(lines: list[str]) -> Iterator[list[str]]:
    """Programs with a statement less, or with the statements of a block in its place; large pieces first."""
    ends = []
    for at, line in enumerate(lines):
        end = at + 1
        while end < len(lines) and (not lines[end].strip() or depth(lines[end]) > depth(line)):
            end += 1
        ends.append((at, end))
    for at, end in sorted(ends, key=lambda span: span[0] - span[1]):
        rest = lines[:at] + lines[end:]
        yield rest
        yield [*lines[:at], "    " * depth(lines[at]) + "pass", *lines[end:]]
        if end > at + 1:
            yield lines[:at] + [line[4:] for line in lines[at + 1 : end]] + lines[end:]


def shrunk(source: str, seconds: float = 60) -> str:
    until, lines = time.monotonic() + seconds, [line for line in source.splitlines() if line.strip()]
    kind = difference(source)[0]
    again = True
    while again and time.monotonic() < until:
        again = False
        for fewer in smaller(lines):
            if time.monotonic() > until:
                break
            text = "\n".join(fewer) + "\n"
            try:
                compile(text, NAME, "exec")
            except SyntaxError:
                continue
            if "def program(" in text and difference(text)[0] == kind:
                lines, again = fewer, True
                break
    return "\n".join(lines) + "\n"


# --- many ---------------------------------------------------------------------------------------------------------------------------


def child(first: int, count: int, descriptor: int) -> None:
    """Writes a line of ``[seed, verdict, detail]`` for each seed."""
    with os.fdopen(descriptor, "w") as channel:
        for seed in range(first, first + count):
            if seed % 10 == 0:  # what is imported, when it is wanted, is no garbage: to look through it took four fifths of the time
                gc.collect()
                gc.freeze()
            kind, detail = difference(random_python(seed))
            channel.write(json.dumps([seed, kind, detail if kind != "right" else ""]) + "\n")
            channel.flush()
    os._exit(0)


def verdicts(first: int, count: int, chunk: int = 250) -> Iterator[tuple[int, str, str]]:
    """Seeds with their verdicts, from as many processes as it takes."""
    at, end = first, first + count
    while at < end:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1", "OPMILL_CACHE_DIR": f"{folder}/cache"}
            environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), environment.get("PYTHONPATH", "")])
            call = f"import fuzz_python as f; f.child({at}, {min(chunk, end - at)}, %d)"
            with telling(lambda write, call=call, own=environment: ([sys.executable, "-c", call % write], own)) as process:
                try:
                    while (told := process.next(3 * SECONDS + 60)) is not None:
                        at = told[0] + 1
                        yield tuple(told)
                    kind = "hung"
                except EOFError:
                    kind = "crash" if process.process.wait() != 0 else ""
                if kind:
                    yield at, kind, process.noise(3000)
                    at += 1


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--count", type=int, default=1000)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--only", type=int, help="one seed, in this process")
    arguments.add_argument("--shrink", action="store_true", help="with --only or --file: makes the program smaller")
    arguments.add_argument("--file", type=Path, help="a program")
    options = arguments.parse_args()
    if options.only is not None or options.file:
        source = options.file.read_text() if options.file else random_python(options.only)
        kind, detail = difference(source)
        if options.shrink and kind in ("wrong", "crash"):
            source = shrunk(source)
            kind, detail = difference(source)
        print(f"{source}\n{kind}: {detail}")
        return int(kind not in ("right", "skipped"))
    counts: collections.Counter[str] = collections.Counter()
    start, each = time.perf_counter(), -(-options.count // options.jobs)
    parts = [range(options.seed, options.seed + options.count)[k * each : (k + 1) * each] for k in range(options.jobs)]

    def run(part: range) -> None:
        for seed, kind, detail in verdicts(part.start, len(part)) if part else ():
            counts[kind] += 1
            if sum(counts.values()) % 1000 == 0:
                print(f"{dict(counts)} after {time.perf_counter() - start:.0f} s", flush=True)
            if kind not in ("right", "skipped"):
                print(f"---- seed {seed}: {kind}: {detail}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, parts))
    print(f"{dict(counts)} in {time.perf_counter() - start:.0f} s")
    return int(set(counts) - {"right", "skipped"} != set())


if __name__ == "__main__":
    raise SystemExit(main())
