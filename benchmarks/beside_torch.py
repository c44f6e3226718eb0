"""Plain programs (``plain_programs.py``, ``plain_networks.py``) by eager, opmill and torch.compile, taken in turns in one process.

usage: beside_torch.py [PROGRAM...] [--device cpu] [--scale N] [--threads N] [--rounds N]

Prints a line for each: the shortest time of a call by each of the three, how much faster opmill is than the other two, and how long each
compiler took for its first calls, and how far what opmill gives is from the program in float64; then the names of programs in which opmill
is behind one of the two, or over twice as far from float64 as eager. The exit status is 1 where there are any.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import opmill
from measure import distance, in_double, tensors_of
from plain_networks import PROGRAMS

Run = Callable[[], Any]
SLACK = 1.03
"""Times that differ by less are the same."""
FIRST = 3
"""Calls that are given time to compile."""
DIFFERENT = 1e-3
"""What is nearer to float64 is right, however near eager is."""


def ready(compiler: Callable[[Any], Any], function: Any, args: tuple[Any, ...]) -> Run:
    """A call; of a module also its backward, whose gradients it gives and does not keep."""
    compiled = compiler(function)
    if not isinstance(function, torch.nn.Module):
        return lambda: compiled(*args)

    def step() -> Any:
        loss = compiled(*args).square().mean()
        loss.backward()
        gradients = [parameter.grad for parameter in function.parameters()]
        for parameter in function.parameters():
            parameter.grad = None
        return [loss, *gradients]

    return step


def in_float64(function: Any, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """What the last of the first calls gives for float64; nothing where the program holds tensors of its own that are float32."""
    torch.manual_seed(0)
    run = ready(lambda f: f, in_double(function), in_double(args))
    try:
        return tensors_of([run() for _ in range(FIRST)][-1])
    except RuntimeError:
        return []


def timed(run: Run, count: int, wait: Run) -> float:
    wait()
    began = time.perf_counter()
    for _ in range(count):
        run()
    wait()
    return (time.perf_counter() - began) / count


def measured(name: str, scale: int, rounds: int, wait: Run) -> bool:
    """Prints the line of one program; whether opmill is behind, or gives something else."""
    torch.manual_seed(0)
    function, args = PROGRAMS[name](scale)
    compilers: dict[str, Callable[[Any], Any]] = {"eager": lambda f: f, "opmill": opmill.compile, "torch": torch.compile}
    runs = {each: ready(compiler, copy.deepcopy(function), copy.deepcopy(args)) for each, compiler in compilers.items()}
    results, starts = {}, {}
    for each, run in runs.items():
        began = time.perf_counter()
        for _ in range(FIRST):
            results[each] = run()
        wait()
        starts[each] = time.perf_counter() - began
    count = max(1, int(0.05 / timed(runs["eager"], 3, wait)))
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for each, run in runs.items():
            best[each] = min(best[each], timed(run, count, wait))
    eager, ours, theirs = (best[each] for each in ("eager", "opmill", "torch"))
    exact = in_float64(function, copy.deepcopy(args)) or tensors_of(results["eager"])
    error, allowed = (distance(tensors_of(results[each]), exact) for each in ("opmill", "eager"))
    behind = ours > SLACK * min(eager, theirs) or error > 2 * allowed + DIFFERENT
    print(
        f"{name:22s} eager {eager * 1e3:9.3f} ms  opmill {ours * 1e3:9.3f}  torch {theirs * 1e3:9.3f}   {eager / ours:5.2f}x eager"
        f"  {theirs / ours:5.2f}x torch   first {starts['opmill']:5.1f} s, {starts['torch']:5.1f} s   error {error:.0e}{'  <' if behind else ''}",
        flush=True,
    )
    return behind


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", choices=[[], *PROGRAMS], metavar="PROGRAM", help="all, if none is named")
    parser.add_argument("--device", default="cpu", help="where tensors are made")
    parser.add_argument("--scale", type=int, default=1, help="how many times larger batches are; 16 is right for a large GPU")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    torch.set_default_device(options.device)
    module = getattr(torch, torch.device(options.device).type, None)
    wait: Run = getattr(module, "synchronize", lambda: None)
    behind = [name for name in options.programs or PROGRAMS if measured(name, options.scale, options.rounds, wait)]
    print(f"behind: {', '.join(behind) or 'none'}")
    return int(bool(behind))


if __name__ == "__main__":
    sys.exit(main())
