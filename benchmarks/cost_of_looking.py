"""What it costs that a program can be looked into, while nobody looks.

usage: cost_of_looking.py [MODEL...] [--turns 15]. For each model prints one line of JSON:

- ``hooks_ms``: milliseconds that a compile spends in what only tells (``HOOKS``), taken around each of them; ``by_hook`` has their parts;
- ``compile_ms``: milliseconds of the compiling thread (its own: other processes of the machine take none of it) for a compile of which the
  kernels are built already, and ``share`` of the hooks in it; ``cut_ms``: the same with the hooks cut out, in turns with it;
- ``cold_s``: seconds of the first compile, which builds kernels, and ``cold_share``;
- ``functions_of_python_in_a_call``: how many of opmill's a compiled call runs, and ``call_us``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

import zoo


def nothing(*_: Any, **__: Any) -> None:
    return None


def empty(*_: Any, **__: Any) -> str:
    return ""


def as_given(_: Any, origin: str) -> str:
    return origin


def unwatched(*_: Any, **__: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


HOOKS: dict[str, tuple[tuple[str, Callable[..., Any]], ...]] = {
    "texts of graphs": (("opmill.backend:listed", empty),),
    "logs and counters": (("opmill.backend:GraphBackend._tell", nothing), ("opmill.record:Record.captured", nothing)),
    "progress": (("opmill.backend:progress", unwatched), ("opmill.compile:_watched", unwatched)),
    "seconds of steps": (("opmill_graph_ir.report:Report.step", unwatched),),
    "loops for who asks later": (("opmill_graph_ir.backend:keep_loops", nothing), ("opmill_graph_ir.compiling:show", empty)),
    "source lines": (
        ("opmill_bytecode_frontend.interpretation.machine:Interpreter.location", empty),
        ("opmill_bytecode_frontend.graph.recorder:running_module", empty),
        ("opmill_bytecode_frontend.graph.recorder:began", empty),
    ),
    "lines of gradients": (("opmill_graph_ir.capture.places:Origins.now", as_given),),
}
"""What only tells, and what stands for it where it is cut out."""


def found(target: str) -> tuple[Any, str]:
    """What holds a function, and its name there."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    return owner, name


@contextlib.contextmanager
def with_hooks(change: Callable[[str, Callable[..., Any], Callable[..., Any]], Any]) -> Iterator[None]:
    """Each hook is what ``change(its row's name, itself, what stands for it)`` gives."""
    with contextlib.ExitStack() as changed:
        for name, targets in HOOKS.items():
            for target, instead in targets:
                owner, attribute = found(target)
                kept = vars(owner)[attribute]
                new = change(name, getattr(owner, attribute), instead)
                changed.enter_context(mock.patch.object(owner, attribute, staticmethod(new) if isinstance(kept, staticmethod) else new))
        yield


class Timing:
    """Takes the time that is spent in hooks."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(HOOKS, 0.0)

    def around(self, name: str, hook: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
        watch = _Watched if instead is unwatched else None

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            result = hook(*args, **kwargs)
            self.seconds[name] += time.thread_time() - start
            return result if watch is None else watch(self, name, result)

        return timed


class _Watched:
    """A context whose beginning and end are timed, and not what is inside."""

    def __init__(self, timing: Timing, name: str, context: Any) -> None:
        self.timing, self.name, self.context = timing, name, context

    def __enter__(self) -> Any:
        start = time.thread_time()
        given = self.context.__enter__()
        self.timing.seconds[self.name] += time.thread_time() - start
        return given

    def __exit__(self, *error: Any) -> Any:
        start = time.thread_time()
        handled = self.context.__exit__(*error)
        self.timing.seconds[self.name] += time.thread_time() - start
        return handled


def compiling(model: Any, args: Any, kwargs: Any) -> tuple[float, float]:
    """Seconds of the compiling thread, and of the clock, for a compile."""
    import opmill

    opmill.reset()
    compiled = opmill.compile(model)
    start, clock = time.thread_time(), time.perf_counter()
    compiled(*args, **kwargs)
    return time.thread_time() - start, time.perf_counter() - clock


def functions_in(call: Callable[[], object]) -> int:
    """How many functions of opmill a call runs."""
    seen = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal seen
        seen += event == "call" and "opmill" in frame.f_code.co_filename and frame.f_code.co_filename != __file__

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def measure(name: str, turns: int) -> dict[str, Any]:
    import opmill

    torch.manual_seed(0)
    model, args, kwargs = zoo.MODELS[name]()
    plain, cut, timings = [], [], []
    with torch.no_grad(), mock.patch("opmill_graph_ir.backend._from_store", lambda *_: False):
        _, cold = compiling(model, args, kwargs)
        for _ in range(turns):
            plain.append(compiling(model, args, kwargs)[0])
            with with_hooks(lambda _, __, instead: instead):
                cut.append(compiling(model, args, kwargs)[0])
            timing = Timing()
            with with_hooks(timing.around):
                compiling(model, args, kwargs)
            timings.append(timing.seconds)
        compiled = opmill.compile(model)
        for _ in range(2):
            compiled(*args, **kwargs)
        calls = [_timed(lambda: compiled(*args, **kwargs)) for _ in range(50)]
        functions = functions_in(lambda: compiled(*args, **kwargs))
    parts = {hook: statistics.median(each[hook] for each in timings) for hook in HOOKS}
    hooks, whole = sum(parts.values()), statistics.median(plain)
    return {
        "model": name,
        "hooks_ms": round(1e3 * hooks, 2),
        "compile_ms": round(1e3 * whole, 1),
        "share": round(hooks / whole, 4),
        "cut_ms": round(1e3 * statistics.median(cut), 1),
        "cold_s": round(cold, 2),
        "cold_share": round(hooks / cold, 5),
        "functions_of_python_in_a_call": functions,
        "call_us": round(1e6 * statistics.median(calls), 1),
        "by_hook": {hook: round(1e3 * seconds, 2) for hook, seconds in parts.items()},
    }


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["mlp", "bert_s", "resnet18"])
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="looking-") as folder, mock.patch.dict("os.environ", OPMILL_CACHE_DIR=folder):
        for name in options.models:
            print(json.dumps(measure(name, options.turns)), flush=True)


if __name__ == "__main__":
    main()
