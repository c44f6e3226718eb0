"""How much of transformers, timm and torchvision is captured whole, and whether it is right, beside torch.compile.

usage: capture.py [--libraries transformers timm torchvision] [--every N] [--only CASE ...] [--compilers opmill torch] [--log FILE] [--redo
WHAT ...]

Each architecture is built small with random weights, run plainly, and run under no_grad through ``opmill.compile(fullgraph=True,
backend="eager")`` and through torch.compile with the same arguments. Prints how many are captured whole and right, refused (with the
reason), wrong, or cannot be built, by library and in all.

Every model has a process of its own, with a limit of time (``--seconds`` for building, and again for each compiler) and of memory
(``--gigabytes``). Each finding is a line of JSON in ``--log``; a run that was stopped goes on where it was. ``--redo opmill`` asks that
compiler again about all cases, ``--redo refused error`` about those with that status.
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import os
import re
import resource
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: a process with threads cannot be forked
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

HERE = Path(__file__).resolve().parent
Finding = dict[str, Any]
#: Of the plain run: the case says nothing about compilers.
UNUSABLE = ("unbuildable", "random")


# --- one model, in its process ------------------------------------------------------------------------------------------------------


def same(left: Any, right: Any) -> bool:
    """Equal structure, and tensors equal but for rounding."""
    import torch

    if isinstance(left, torch.Tensor):
        if type(left) is not type(right) or left.shape != right.shape or left.dtype != right.dtype or left.stride() != right.stride():
            return False
        return (
            torch.allclose(left, right, rtol=1e-4, atol=1e-5, equal_nan=True) if left.dtype.is_floating_point else torch.equal(left, right)
        )
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

    sizes_of_data = True

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


COMPILERS = {"opmill": opmill_compile, "torch": torch_compile}


def plainly(case: str) -> tuple[Finding, Any, Any, Any]:
    """``status`` right, unbuildable or random; the module, its inputs and what it gives."""
    from capture_models import build

    start = time.perf_counter()
    try:
        module, inputs = build(case)
        want = run(module, inputs)
        again = run(module, inputs)
    except Exception as error:
        return {"status": "unbuildable", "reason": f"{type(error).__name__}: {error}"[:2000]}, None, None, None
    if not same(want, again):
        return {"status": "random", "reason": "two plain runs differ"}, None, None, None
    return {"status": "right", "seconds": round(time.perf_counter() - start, 2)}, module, inputs, want


def told(module: Any, inputs: Any) -> Any:
    """What the module gives, or raises, by itself where it is told that it is being compiled: models ask, and some then do something
    else."""
    import torch

    torch.compiler._is_compiling_flag = True
    try:
        return run(module, inputs)
    except Exception as error:
        return type(error), str(error)
    finally:
        torch.compiler._is_compiling_flag = False


def judge(compiler: Any, module: Any, inputs: Any, want: Any) -> Finding:
    """``status``: right, wrong, refused, error, told (wrong or an error, and just so without a compiler where the model is told that there
    is one); ``reason`` for all but the first."""
    start = time.perf_counter()
    backend = Eager()
    try:
        compiled = compiler(module, backend)
        first, second = run(compiled, inputs), run(compiled, inputs)
    except Exception as error:
        refused = getattr(error, "code", "") or "Unsupported" in type(error).__name__
        last = traceback.extract_tb(error.__traceback__)[-1]
        own = not refused and told(module, inputs) == (type(error), str(error))
        return {
            "status": "refused" if refused else "told" if own else "error",
            "reason": f"{error}"[:600],
            "kind": type(error).__name__,
            "at": f"{last.filename}:{last.lineno}",
        }
    if not backend.graphs:
        return {"status": "error", "reason": "nothing was captured, and nobody said so"}
    right = same(want, first) and same(want, second)
    own = not right and same(told(module, inputs), first)
    found = {
        "status": "right" if right else "told" if own else "wrong",
        "graphs": backend.graphs,
        "seconds": round(time.perf_counter() - start, 2),
    }
    return found if right else {**found, "reason": "results differ"}


def work(case: str, runs: list[str], gigabytes: float, out: int) -> None:
    """The process of one case: a line of JSON when a run begins and when it ends."""
    import logging
    import warnings

    def say(**message: Any) -> None:
        os.write(out, (json.dumps({"case": case, **message}) + "\n").encode())

    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    resource.setrlimit(resource.RLIMIT_AS, (int(gigabytes * 2**30),) * 2)
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    say(run="plain", begun=True)
    finding, module, inputs, want = plainly(case)
    say(run="plain", **finding)
    if finding["status"] in UNUSABLE:
        return
    for name in runs:
        say(run=name, begun=True)
        say(run=name, **judge(COMPILERS[name], module, inputs, want))


# --- the driver ---------------------------------------------------------------------------------------------------------------------


def messages(case: str, runs: list[str], seconds: float, gigabytes: float) -> Iterator[Finding]:
    """Forks a process for the case and gives its findings; one that hangs or dies costs only the run at hand."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            work(case, runs, gigabytes, writing)
        finally:
            os._exit(0)
    os.close(writing)
    begun, ended = "plain", "late"
    with os.fdopen(reading, "rb", buffering=0) as pipe, selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while selector.select(seconds):
            line = pipe.readline()
            if not line:
                ended = "died"
                break
            message = json.loads(line)
            if not message.get("begun"):
                yield message
            begun = "" if not message.get("begun") else message["run"]
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if begun:
        reason = f"more than {seconds:.0f} s" if ended == "late" else f"ended with status {status}"
        yield {"case": case, "run": begun, "status": ended if begun != "plain" else "unbuildable", "reason": reason}


def read_log(path: Path) -> dict[tuple[str, str], Finding]:
    """The last finding of every (case, run)."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {(f["case"], f["run"]): f for f in map(json.loads, lines)}


def to_run(case: str, compilers: list[str], known: dict[tuple[str, str], Finding], redo: list[str]) -> list[str]:
    """The compilers still to be asked about a case."""
    if known.get((case, "plain"), {}).get("status") in UNUSABLE:
        return ["plain"] if "plain" in redo else []
    return [c for c in compilers if (found := known.get((case, c))) is None or c in redo or found["status"] in redo]


def percent(part: int, whole: int) -> str:
    return f"{part:4} of {whole:4} ({100 * part / max(1, whole):5.1f}%)"


def summary(findings: dict[tuple[str, str], Finding], cases: list[str], compilers: list[str]) -> str:
    """By library and in all: what each compiler captured whole, and how much of what torch.compile did opmill does too."""
    lines = []
    status = lambda case, run: findings.get((case, run), {}).get("status", "not run")
    for library in [*dict.fromkeys(case.split(":")[0] for case in cases), ""]:
        own = [case for case in cases if case.startswith(library)]
        usable = [case for case in own if status(case, "plain") == "right"]
        lines.append(f"{library or 'all'}: {len(own)} architectures, {len(usable)} run plainly")
        for compiler in compilers:
            counts = collections.Counter(status(case, compiler) for case in usable)
            detail = ", ".join(f"{n} {name}" for name, n in counts.most_common())
            lines.append(
                f"  {compiler:8} {percent(counts['right'], len(usable) - counts['not run'])} captured whole and right   ({detail})"
            )
        theirs = [case for case in usable if status(case, "torch") == "right" and status(case, "opmill") != "not run"]
        if theirs:
            lines.append(
                f"  of what torch.compile captures whole, opmill "
                f"{percent(sum(status(c, 'opmill') == 'right' for c in theirs), len(theirs))}"
            )
    return "\n".join(lines)


def reasons(findings: dict[tuple[str, str], Finding], cases: list[str], compiler: str) -> str:
    """What was not captured right, by reason, most frequent first; ``+`` marks what torch.compile captures."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for case in cases:
        found = findings.get((case, compiler))
        if found is None or found["status"] == "right":
            continue
        text = re.sub(r"0x\w+|\[[^\]]*\]", "...", found["reason"].split("\n")[0])
        theirs = compiler != "torch" and findings.get((case, "torch"), {}).get("status") == "right"
        groups[f"{found['status']}: {text[:150]}"].append(case.split(":")[1] + "+" * theirs)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return "\n".join(f"{len(named):4}  {reason}\n      {', '.join(named)}" for reason, named in ordered)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", nargs="+", default=["torchvision", "timm", "transformers"])
    parser.add_argument("--every", type=int, default=1, help="only every Nth architecture")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="these cases, as library:name")
    parser.add_argument("--compilers", nargs="+", choices=sorted(COMPILERS), default=["opmill", "torch"])
    parser.add_argument("--redo", nargs="+", default=[], help="compilers or statuses to ask again about")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--gigabytes", type=float, default=12, help="of addresses, a process")
    parser.add_argument("--log", type=Path, default=Path("bench-results/capture.jsonl"))
    return parser.parse_args()


def main() -> None:
    options = parse()
    from rich.progress import Progress

    sys.path.insert(0, str(HERE))
    import opmill  # noqa: F401 -- imported once, before the processes of the models are forked
    from capture_models import names

    if "torch" in options.compilers:
        import torch._dynamo  # noqa: F401

    cases = options.only or names(options.libraries)[options.offset :: options.every]
    options.log.parent.mkdir(parents=True, exist_ok=True)
    findings = read_log(options.log)
    with Progress(disable=not sys.stderr.isatty()) as progress, options.log.open("a") as log:
        for case in progress.track(cases, description="capturing"):
            runs = to_run(case, options.compilers, findings, options.redo)
            for finding in (
                messages(case, [r for r in runs if r in COMPILERS] or options.compilers, options.seconds, options.gigabytes) if runs else ()
            ):
                findings[finding["case"], finding["run"]] = finding
                print(json.dumps(finding), file=log, flush=True)
    print(summary(findings, cases, options.compilers))
    for compiler in options.compilers:
        print(f"\nnot captured right by {compiler}:\n{reasons(findings, cases, compiler)}")


if __name__ == "__main__":
    main()
