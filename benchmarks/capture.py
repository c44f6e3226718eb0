"""How much of transformers, timm and torchvision is captured whole, and whether it is right.

usage: capture.py [--libraries transformers timm torchvision] [--every N] [--only CASE ...] [--compare] [--json FILE] [--seconds S]

Each architecture is built small with random weights, run plainly, and run through ``opmill.compile(fullgraph=True, backend="eager")`` under
no_grad. Prints how many are captured, right, refused (with the numbered reason), or cannot be built, by library and in all. ``--compare``
also asks torch.compile about those that were not captured right. Every batch of models is a process of its own; a model that takes
longer than ``--seconds`` ends its process and counts as ``late``.
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import os
import re
import selectors
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


# --- one model, in the worker -------------------------------------------------------------------------------------------------------


def same(left: Any, right: Any) -> bool:
    """Equal structure, and tensors equal but for rounding."""
    import torch

    if isinstance(left, torch.Tensor):
        if type(left) is not type(right) or left.shape != right.shape or left.dtype != right.dtype or left.stride() != right.stride():
            return False
        return torch.allclose(left, right, rtol=1e-4, atol=1e-5, equal_nan=True) if left.dtype.is_floating_point else torch.equal(left, right)
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (int, float, str, type(None))):
        return bool(left == right)
    return not hasattr(left, "__dict__") or same(vars(left), vars(right))


def run(module: Any, inputs: Any) -> Any:
    import torch

    args, kwargs = copy.deepcopy(inputs)
    torch.manual_seed(0)
    with torch.no_grad():
        return module(*args, **kwargs)


class Eager:
    """The backend: runs graphs as they are, and counts them."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.graphs += 1
        return gm.forward


def opmill_compile(module: Any, backend: Eager) -> Any:
    import opmill

    return opmill.compile(module, fullgraph=True, backend=backend)


def torch_compile(module: Any, backend: Eager) -> Any:
    import torch

    torch._dynamo.reset()
    return torch.compile(module, fullgraph=True, backend=backend)


def judge(case: str, compiler: Any) -> dict[str, Any]:
    """``status``: right, wrong, refused, error, unbuildable; ``reason`` for all but the first."""
    from capture_models import build

    try:
        module, inputs = build(case)
        want = run(module, inputs)
    except Exception as error:
        return {"status": "unbuildable", "reason": f"{type(error).__name__}: {error}"}
    start = time.perf_counter()
    backend = Eager()
    try:
        compiled = compiler(module, backend)
        first, second = run(compiled, inputs), run(compiled, inputs)
    except Exception as error:
        code = getattr(error, "code", "")
        status = "refused" if code or "Unsupported" in type(error).__name__ else "error"
        last = traceback.extract_tb(error.__traceback__)[-1]
        return {"status": status, "reason": str(error)[:600], "kind": type(error).__name__, "at": f"{last.filename}:{last.lineno}"}
    if not backend.graphs:
        return {"status": "error", "reason": "nothing was captured, and nobody said so"}
    if not same(want, run(module, inputs)):
        return {"status": "random", "reason": "two plain runs differ"}
    status = "right" if same(want, first) and same(want, second) else "wrong"
    return {"status": status, "graphs": backend.graphs, "seconds": round(time.perf_counter() - start, 2), "reason": "" if status == "right" else "results differ"}


def work(cases: list[str], compiler: str) -> None:
    """The worker: one line of JSON a case."""
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    sys.path.insert(0, str(HERE))
    for case in cases:
        print(json.dumps({"case": case, "begun": True}), flush=True)
        result = judge(case, {"opmill": opmill_compile, "torch": torch_compile}[compiler])
        print(json.dumps({"case": case, **result}), flush=True)


# --- the driver ---------------------------------------------------------------------------------------------------------------------


def batches(cases: list[str], size: int) -> list[list[str]]:
    return [cases[i : i + size] for i in range(0, len(cases), size)]


def run_batch(cases: list[str], compiler: str, seconds: float) -> list[dict[str, Any]]:
    """Runs a batch in a process; one that hangs or dies costs only the case at hand."""
    results: list[dict[str, Any]] = []
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    rest = list(cases)
    while rest:
        command = [sys.executable, __file__, "--work", compiler, *rest]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, bufsize=0)
        assert process.stdout is not None
        selector = selectors.DefaultSelector()
        selector.register(process.stdout, selectors.EVENT_READ)
        begun, why = rest[0], "late"
        while selector.select(seconds):
            line = process.stdout.readline()
            if not line:
                why = "died"
                break
            if not line.startswith(b"{"):
                continue
            message = json.loads(line)
            if message.get("begun"):
                begun = message["case"]
            else:
                results.append(message)
                rest.remove(message["case"])
        process.kill()
        process.wait()
        if rest:
            results.append({"case": begun, "status": why, "reason": f"{why} after {seconds:.0f} s" if why == "late" else f"exit {process.returncode}"})
            rest.remove(begun)
    return results


def summary(results: list[dict[str, Any]]) -> str:
    by_library: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for result in results:
        for key in (result["case"].split(":")[0], "all"):
            by_library[key][result["status"]] += 1
    lines = []
    for library, counts in by_library.items():
        built = sum(counts.values()) - counts["unbuildable"]
        detail = ", ".join(f"{n} {status}" for status, n in counts.most_common())
        lines.append(f"{library:14} {counts['right']:4} of {built:4} captured whole and right   ({detail})")
    return "\n".join(lines)


def reasons(results: list[dict[str, Any]]) -> str:
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for result in results:
        if result["status"] not in ("right", "unbuildable", "random"):
            text = re.sub(r"0x\w+|\[[^\]]*\]", "...", result["reason"].split("\n")[0])
            groups[f"{result['status']}: {text[:150]}"].append(result["case"].split(":")[1])
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return "\n".join(f"{len(cases):4}  {reason}\n      {', '.join(cases[:8])}" for reason, cases in ordered)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", nargs="+", default=["torchvision", "timm", "transformers"])
    parser.add_argument("--every", type=int, default=1, help="only every Nth architecture")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="these cases, as library:name")
    parser.add_argument("--compare", action="store_true", help="ask torch.compile about what was not captured right")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    from rich.progress import Progress

    sys.path.insert(0, str(HERE))
    from capture_models import names

    cases = options.only or names(options.libraries)[options.offset :: options.every]
    results: list[dict[str, Any]] = []
    with Progress(disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("capturing", total=len(cases))
        for batch in batches(cases, options.batch):
            results += run_batch(batch, "opmill", options.seconds)
            progress.update(bar, completed=len(results))
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    print(summary(results), reasons(results), sep="\n\n")
    if options.compare:
        missed = [r["case"] for r in results if r["status"] not in ("right", "unbuildable", "random")]
        theirs = [r for batch in batches(missed, options.batch) for r in run_batch(batch, "torch", options.seconds)]
        print("\ntorch.compile on those that were not captured right:", summary(theirs), reasons(theirs), sep="\n\n")
        for result in results:
            result["torch"] = next((t for t in theirs if t["case"] == result["case"]), None)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[3:], sys.argv[2])
    else:
        main()
