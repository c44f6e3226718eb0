"""Operators and small modules, compiled against eager: none may be slower, forward or backward.

usage: operators.py [PATTERN...] [--dtypes float32,bfloat16] [--seconds S] [--below R] [--torch] [--output FILE]
PATTERN: regular expressions of names of cases (``operator_cases.py``, ``module_cases.py``). With ``--torch``, torch.compile beside them. Calls of both are taken in turns in this process, with one
thread; what is compared are the shortest times, which a busy machine changes least, and what is slower than ``--below`` allows is
measured again before it is called so. Forward is without gradients; training is forward and backward, towards all inputs that have
gradients and all parameters. Prints a line of JSON a case, then those that are slower. Exit status 1 where there are any.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import module_cases  # noqa: F401  (adds its rows)
import opmill
from operator_cases import CASES

Run = Callable[[], Any]


def in_dtype(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, tuple):
        return tuple(in_dtype(each, dtype) for each in value)
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def asking(value: Any) -> Any:
    """The same arguments as leaves that ask for gradients."""
    if isinstance(value, tuple):
        return tuple(asking(each) for each in value)
    return value.detach().requires_grad_() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, (tuple, list)):
        return [leaf for each in value for leaf in leaves(each)]
    return [value] if isinstance(value, torch.Tensor) else []


def forward(function: Callable[..., Any], args: tuple[Any, ...]) -> Run:
    def run() -> Any:
        with torch.no_grad():
            return function(*args)

    return run


def training(function: Callable[..., Any], module: Any, args: tuple[Any, ...]) -> Run | None:
    """None where there is nothing to differentiate."""
    args = asking(args)
    towards = [leaf for leaf in leaves(args) if leaf.requires_grad]
    towards += list(module.parameters()) if isinstance(module, torch.nn.Module) else []
    outputs = [out for out in leaves(function(*args)) if out.requires_grad]
    if not outputs or not towards:
        return None
    tangents = [torch.ones_like(out) for out in outputs]

    def run() -> Any:
        results = [out for out in leaves(function(*args)) if out.requires_grad]
        return torch.autograd.grad(results, towards, tangents, allow_unused=True)

    return run


def shortest(runs: tuple[Run, ...], seconds: float) -> list[float]:
    """The shortest time of a call of each, in microseconds, several calls of each in turns."""
    best = [float("inf")] * len(runs)
    for run in runs * 3:
        run()
    started, rounds = time.perf_counter(), 0
    while time.perf_counter() - started < seconds or rounds < 4:
        rounds += 1
        for which, run in enumerate(runs):
            for _ in range(5):
                start = time.process_time()
                run()
                best[which] = min(best[which], time.process_time() - start)
    return [1e6 * each for each in best]


def measured(name: str, dtype: torch.dtype, seconds: float, below: float, beside: bool) -> dict[str, Any]:
    """``beside``: torch.compile is measured, too."""
    torch.manual_seed(0)
    function, args = CASES[name]()
    function = function.to(dtype) if isinstance(function, torch.nn.Module) else function
    args = in_dtype(args, dtype)
    own = lambda: copy.deepcopy(function) if isinstance(function, torch.nn.Module) else function
    sides = {"eager": function, "ours": opmill.compile(own()), **({"torch": torch.compile(own())} if beside else {})}
    row: dict[str, Any] = {"case": name, "dtype": str(dtype).removeprefix("torch.")}
    for kind, made in {
        "forward": [forward(side, args) for side in sides.values()],
        "training": [training(side, side, args) for side in sides.values()],
    }.items():
        runs = tuple(run for run in made if run is not None)
        if len(runs) < len(sides):
            continue
        times = shortest(runs, seconds)
        if times[0] < below * times[1]:
            times = list(map(min, times, shortest(runs, 3 * seconds)))
        row[kind] = {f"{side}_us": round(time, 1) for side, time in zip(sides, times, strict=True)}
        row[kind]["ratio"] = round(times[0] / times[1], 3)
    if beside:
        torch._dynamo.reset()
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="regular expressions of names of cases (default: all)")
    parser.add_argument("--dtypes", default="float32,bfloat16", help="comma-separated")
    parser.add_argument("--seconds", type=float, default=0.2, help="how long each pair is measured")
    parser.add_argument("--below", type=float, default=0.95, help="the ratio of eager's time to ours that is called slower")
    parser.add_argument("--torch", action="store_true", help="measure torch.compile, too")
    parser.add_argument("--output", type=Path, help="where the lines are added")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    slower: list[str] = []
    for name in CASES:
        if chosen.patterns and not any(re.search(pattern, name) for pattern in chosen.patterns):
            continue
        for dtype in chosen.dtypes.split(","):
            try:
                row = measured(name, getattr(torch, dtype), chosen.seconds, chosen.below, chosen.torch)
            except (RuntimeError, NotImplementedError, TypeError) as error:
                row = {"case": name, "dtype": dtype, "failed": str(error).splitlines()[0][:150]}
            print(json.dumps(row), flush=True)
            if chosen.output:
                with chosen.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            slower += [
                f"{row[k]['ratio']:5.2f}  {name}, {dtype}, {k}"
                for k in ("forward", "training")
                if k in row and row[k]["ratio"] < chosen.below
            ]
            opmill.reset()
    print(f"slower than eager: {len(slower)}", *sorted(slower), sep="\n")
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
