"""A process that compiles is killed (SIGKILL) at a random time, with everything that it started; the next one finds what it left, gives
eager's result, and leaves nothing of the dead behind.

    python benchmarks/killed.py [--count 40] [--seed 0]"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """
import sys, torch, opmill
from fault_injection import MODELS, graphs

torch.set_num_threads(1)
torch.manual_seed(0)
model, x = MODELS[sys.argv[1]]()
expected = model(x)
print("begins", flush=True)
compiled = opmill.compile(model)
torch.testing.assert_close(compiled(x), expected, atol=1e-4, rtol=1e-4)
compiled(x).sum().backward() if model.training else None
assert not any(graph[1] for graph in graphs(compiled)), graphs(compiled)
print("right", flush=True)
"""
BOUND_S = 300


def started(model: str, folder: Path) -> subprocess.Popen[str]:
    """A process that compiles with a cache and a folder for temporary files of its own, in a group of its own."""
    environment = {
        **os.environ, "OPMILL_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder / "temporary"),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH")))),
    }  # fmt: skip
    (folder / "temporary").mkdir(exist_ok=True)
    command = [sys.executable, "-c", PROGRAM, model]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def seconds_to_compile(model: str) -> float:
    """From when a process begins to compile to its end, with nothing in the cache."""
    with tempfile.TemporaryDirectory(prefix="opmill-killed-") as folder:
        process = started(model, Path(folder))
        assert process.stdout is not None
        process.stdout.readline()
        start = time.perf_counter()
        said = process.communicate(timeout=BOUND_S)
        assert process.returncode == 0, said
        return time.perf_counter() - start


def left_behind(folder: Path) -> list[str]:
    """Files in the folder for temporary ones, and half-written ones of the cache."""
    half = [path for path in (folder / "cache").rglob("*") if path.is_file() and (path.suffix == ".tmp" or path.name.startswith(".tmp"))]
    return [str(path.relative_to(folder)) for path in (*(folder / "temporary").iterdir(), *half)]


def survived(model: str, after: float) -> str:
    """What is wrong when a process is killed so many seconds after it began to compile (empty: nothing)."""
    with tempfile.TemporaryDirectory(prefix="opmill-killed-") as name:
        folder = Path(name)
        process = started(model, folder)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(after)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=BOUND_S)
        for turn in ("next", "one after it"):
            following = started(model, folder)
            said, errors = following.communicate(timeout=BOUND_S)
            if following.returncode or not said.endswith("right\n"):
                return f"the {turn} ended with {following.returncode}: {said}{errors}"
            if errors.strip():
                return f"the {turn} said: {errors}"
        left = left_behind(folder)
        return f"left behind: {left}" if left else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="*", default=["mlp", "convolutions", "transformer"])
    chosen = parser.parse_args()
    times, bad = {model: seconds_to_compile(model) for model in chosen.models}, 0
    for number in range(chosen.count):
        model = chosen.models[number % len(chosen.models)]
        after = random.Random(chosen.seed * 10_000 + number).uniform(0, times[model])
        if said := survived(model, after):
            bad += 1
            print(f"{model}, killed after {after:.2f} of {times[model]:.2f} s: {said}", flush=True)
    print(f"{chosen.count} killed, {bad} not survived")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
