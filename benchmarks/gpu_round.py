"""What issues ask of a GPU, in a few minutes of one: each part in a process of its own, with a limit of its own, telling what it finds at once.

usage: gpu_round.py [PART...] [--limit 400] [--output FOLDER]

PART, by default all, in this order: right (flex_attention against float32), while the compilers of what is measured later fill their
caches beside it; flex (its speed, beside torch.compile), decode (gpu_decode.py), token (one sequence alone), int8 (the same with weights of one byte), train (steps of
GPT-2 124M and ViT-L beside torch.compile, with their costliest kernels), infer (gpu_inference.py), inference and training (gpu_families.py, with a call that compiles before it), decoders (gpu_decode.py of other families), norms (gpu_norms.py), random (fuzz_gpu.py), memory (peaks with and without CUDA graphs),
start (the first call of a convolution model, cold and warm), tests (of integration_tests, those on GPUs), tiles (of attention).
``--limit``: seconds for all. Whole rows go to files of FOLDER; what is printed is short. Where opmill is not installed it runs from the
sources (from_sources.py).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import from_sources

HERE = Path(__file__).resolve().parent
PYTHON = [sys.executable, "-W", "ignore"]
_LONG, _MANY = 300, 8
"""Characters of a row that are printed, and kernels."""
_LATE_S = 5
"""That a pipe may stay open after the process that wrote to it has ended: another one may have it."""
TILES = ("causal 4k d128", "causal 16k d128", "causal 4k d64")


def script(name: str, *arguments: str) -> list[str]:
    return [*PYTHON, str(HERE / f"{name}.py"), *arguments]


TRAINED = tuple(script("gpu_steps", model, compiler) for model in ("gpt2", "vit_l") for compiler in ("opmill", "torch"))
GRAPHS = "opmill-reduce-overhead"
DECODED = (
    script("gpu_decode", GRAPHS, "--cache", "8192", "--steps"),
    script("gpu_decode", GRAPHS, "--cache", "256", "--steps"),
    script("gpu_decode", GRAPHS, "--batch", "8"),
    script("gpu_decode", GRAPHS, "--batch", "32"),
    script("gpu_decode", "torch-reduce-overhead", "--batch", "32"),
)
INT8 = tuple(
    script("gpu_decode", compiler, "--int8", *more)
    for compiler, *more in (
        (GRAPHS, "--steps"),
        ("torch-reduce-overhead",),
        (GRAPHS, "--batch", "8"),
        ("torch-reduce-overhead", "--batch", "8"),
        (GRAPHS, "--batch", "32"),
    )
)
MEMORY = (
    *(script("gpu_steps", model, compiler) for model in ("gpt2", "vit_l") for compiler in ("opmill", GRAPHS)),
    script("gpu_decode", "opmill", GRAPHS, "--tokens", "4"),
)
START = (script("gpu_measure", "first", "resnet50", "opmill"),) * 2
WORKLOADS = ("prefill", "qwen", "unet", "dit", "encoder")
INFERRED = tuple(script("gpu_inference", workload) for workload in WORKLOADS)
TESTS = ("test_gpu_attention.py", "test_gpu.py", "test_gpu_recordings.py", "test_gpu_products.py")


@dataclass(frozen=True)
class Part:
    """Commands one after the other, each for so many seconds at most; ``beside``: commands that run meanwhile and say nothing."""

    commands: Sequence[list[str]]
    limit: float
    beside: Sequence[list[str]] = ()


DECODERS = "llama_3b,smollm,qwen2,qwen3,gemma2,phi3,mixtral,gpt2,opt"


def families(which: str) -> Part:
    """Compiled many at once, then measured one by one."""
    return Part([script("gpu_families", which, "torch", "opmill", *more) for more in (("--once", "--jobs", "6"), ())], 590)


PARTS = {
    "right": Part(
        [script("gpu_attention", "right")],
        120,
        [
            *([*command, "--once"] for command in TRAINED),
            script("gpu_attention", "speed", "--once", "--compilers", "torch"),
            script("gpu_attention", "speed", "--once", "--compilers", "opmill"),
            script("gpu_decode", GRAPHS, "--tokens", "2"),
        ],
    ),
    "flex": Part([script("gpu_attention", "speed")], 170),
    "decode": Part(DECODED, 75),
    "token": Part(DECODED[:2], 75),
    "int8": Part(INT8, 75),
    "train": Part(TRAINED, 60),
    "infer": Part(INFERRED, 150),
    "inference": families("inference"),
    "training": families("training"),
    "decoders": Part([script("gpu_decode", "torch-reduce-overhead", GRAPHS, "--model", DECODERS)], 590),
    "norms": Part([script("gpu_norms")], 90),
    "random": Part([script("fuzz_gpu", "--seconds", "150", "--count", "400")], 180),
    "memory": Part(MEMORY, 75),
    "start": Part(START, 60),
    "tests": Part(
        [[*PYTHON, "-m", "pytest", "-q", "-x", "-n", "8", "-p", "no:cacheprovider", *(f"integration_tests/{t}" for t in TESTS)]], 120
    ),
    "tiles": Part([script("gpu_attention", "tiles", *TILES)], 240),
}


class Telling:
    """Prints lines of commands as they come, rows without what is long in them, and keeps all in a file."""

    def __init__(self, folder: Path) -> None:
        self.file = (folder / "rows.txt").open("a")

    def line(self, text: str) -> None:
        self.file.write(text)
        self.file.flush()
        print(_short(text), flush=True)


def _short(text: str) -> str:
    try:
        row: Any = json.loads(text)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        return text.rstrip()[-_LONG:]
    steps, top = row.pop("steps", None), row.pop("top", None)
    lines = [json.dumps(row)[: 2 * _LONG]]
    if steps:
        lines += [f"    {line}" for line in _by_name(steps)]
    return "\n".join([*lines, *(f"    {us:9.1f} us {count:6.1f}x  {name[:70]}" for name, us, count in (top or ())[:_MANY])])


def _by_name(steps: Sequence[str]) -> list[str]:
    """What one token ran, by kernel: microseconds and how often."""
    found: dict[str, list[float]] = {}
    for step in steps:
        if not step.startswith("host"):
            _, _, rest = step.partition("+")
            us, _, name = rest.partition("us")
            row = found.setdefault(name.strip()[:60], [0.0, 0])
            row[0] += float(us)
            row[1] += 1
    total = [f"device {sum(us for us, _ in found.values()):.1f} us in {sum(int(n) for _, n in found.values())} steps"]
    return total + [f"{us:8.1f} us {int(n):4d}x  {name}" for name, (us, n) in sorted(found.items(), key=lambda e: -e[1][0])[:12]]


def run(part: Part, environment: dict[str, str], end: float, telling: Telling) -> None:
    others = [_started(c, environment, subprocess.DEVNULL, subprocess.DEVNULL) for c in part.beside]
    begun = time.monotonic()
    try:
        for command in part.commands:
            limit = min(part.limit, end - time.monotonic())
            if limit > 5:
                _follow(command, environment, limit, telling)
        for other in others:  # what they have compiled by then is there
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.wait(max(0.0, min(begun + part.limit, end) - time.monotonic()))
    finally:
        for other in others:
            if other.poll() is None:
                telling.line(f"still compiling after {time.monotonic() - begun:.0f} s: {_named(other.args)}\n")
                _end(other)


def _named(command: Any) -> str:
    return " ".join(command[3:])


def _started(command: list[str], environment: dict[str, str], out: Any, err: Any) -> subprocess.Popen[str]:
    """With a group of processes of its own, which ends with it."""
    return subprocess.Popen(command, env=environment, stdout=out, stderr=err, text=True, cwd=HERE.parent, start_new_session=True)


def _end(process: subprocess.Popen[str]) -> None:
    """With all that it has started: torchrun's processes have groups of their own."""
    below = _below(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _below(pid: int) -> list[int]:
    """The processes that a process, and those below it, have started."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, children.read_text().split())
    return [*found, *(one for child in found for one in _below(child))]


def _follow(command: list[str], environment: dict[str, str], limit: float, telling: Telling) -> None:
    """Runs a command and tells what it writes; the end of its errors where it fails."""
    with tempfile.TemporaryFile("w+") as errors:
        process = _started(command, environment, subprocess.PIPE, errors)
        reader = threading.Thread(target=_told, args=(process.stdout, telling), daemon=True)
        reader.start()
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            _end(process)
            status = -signal.SIGKILL
        reader.join(_LATE_S)
        if status == -signal.SIGKILL:
            telling.line(f"ended after {limit:.0f} s: {_named(command)}\n")
        elif status:
            errors.seek(0)
            telling.line(f"{_named(command)} ended with {status}:\n" + "\n".join(errors.read().strip().splitlines()[-80:]) + "\n")


def _told(lines: Any, telling: Telling) -> None:
    for line in lines:
        if line.strip():
            telling.line(line)


def go(about: str | None, groups: Mapping[str, Sequence[Part]], limit: float, **more: str) -> None:
    """The script of a round: those of ``groups`` that are named, one after the other, the parts of each at once. ``limit``: seconds unless
    others are given; ``more``: of the environment."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*groups, []])
    parser.add_argument("--limit", type=float, default=limit)
    parser.add_argument("--output", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="round-") as folder:
        environment = dict(os.environ) if importlib.util.find_spec("opmill") else from_sources.environment(Path(folder))
        environment |= {"OPMILL_CACHE_DIR": f"{folder}/opmill", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch", "PYTHONUNBUFFERED": "1"}
        environment |= more
        telling = Telling(options.output)
        for name in options.names or groups:
            telling.line(f"== {name}, after {time.monotonic() - begun:.0f} s\n")
            with ThreadPoolExecutor(max(1, len(groups[name]))) as threads:
                running = [threads.submit(run, part, environment, begun + options.limit, telling) for part in groups[name]]
            for failed in filter(None, (part.exception() for part in running)):
                telling.line(f"{type(failed).__name__}: {failed}\n")
        telling.line(f"== done, after {time.monotonic() - begun:.0f} s\n")


def main() -> None:
    go(__doc__, {name: [part] for name, part in PARTS.items()}, limit=400)


if __name__ == "__main__":
    main()
