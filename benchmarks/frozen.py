"""Inference with weights that stay, on processors: eager, torch.compile, its best mode, opmill, opmill with ``freeze``, in turns.

    python benchmarks/frozen.py MODEL... [--zoo FOLDER] [--threads N] [--rounds N] [--dtype bfloat16] [--only NAME...]

FOLDER has a ``zoo.py`` whose ``MODELS[name]()`` gives a module, arguments and keywords. One line of JSON for each model: milliseconds of
processor time a call (all threads; threads that wait in turns of their own are part of it, so prefer ``--threads 1`` where others work on
the machine), the least of all rounds, and the ratio of torch.compile's best to opmill's.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from typing import Any, Callable

import torch

NAMES = ("eager", "torch", "torch-best", "opmill", "opmill-freeze")


def compiled(name: str, module: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
    """The module as ``name`` runs it, called twice."""
    module = copy.deepcopy(module)
    if name == "eager":
        return module
    if name.startswith("opmill"):
        import opmill

        made = opmill.compile(module, options={"freeze": True} if name.endswith("freeze") else None)
    else:
        import torch._inductor.config as config

        torch._dynamo.reset()
        made = torch.compile(module, mode="max-autotune" if name.endswith("best") else None)
        with config.patch(freezing=name.endswith("best")):
            made(*args, **kwargs), made(*args, **kwargs)
        return made
    made(*args, **kwargs), made(*args, **kwargs)
    return made


def seconds(run: Callable[..., Any], args: Any, kwargs: Any, least: float) -> float:
    """Processor time of a call, over at least ``least`` seconds and three calls."""
    calls, start = 0, time.process_time()
    while calls < 3 or time.process_time() - start < least:
        run(*args, **kwargs)
        calls += 1
    return (time.process_time() - start) / calls


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--zoo", default=".")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", nargs="*", default=NAMES)
    given = parser.parse_args()
    sys.path.insert(0, given.zoo)
    from zoo import MODELS  # type: ignore[import-not-found]

    torch.set_num_threads(given.threads)
    for name in given.models:
        torch.manual_seed(0)
        module, args, kwargs = MODELS[name]()
        if given.dtype != "float32":
            dtype = getattr(torch, given.dtype)
            module = module.to(dtype)
            args = tuple(a.to(dtype) if a.is_floating_point() else a for a in args)
        with torch.no_grad():
            runs = {each: compiled(each, module, args, kwargs) for each in given.only}
            times: dict[str, list[float]] = {each: [] for each in runs}
            for _ in range(given.rounds):
                for each, run in runs.items():
                    times[each].append(1e3 * seconds(run, args, kwargs, 0.3))
        best = {each: round(min(found), 4) for each, found in times.items()}
        ratio = round(best["torch-best"] / best["opmill-freeze"], 3) if {"torch-best", "opmill-freeze"} <= best.keys() else None
        print(json.dumps({"model": name, "dtype": given.dtype, "threads": given.threads, **best, "gain": ratio}), flush=True)


if __name__ == "__main__":
    main()
