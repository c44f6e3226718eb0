"""examples/train_sharded.py under each compiler, one after the other: its losses beside eager's, and how fast its steps are.

    python benchmarks/sharded_example.py [--processes 2] [--rounds 1] [--limit 60] [--compilers eager torch opmill] [ARGUMENT ...]

Its processes are what torchrun would start, with a GPU each where there are as many. Compilers take turns, in the other direction from
round to round; a run that fails, or takes more than ``--limit`` seconds, is ended with all its processes, and the next one follows. A line
of JSON for each run, as it ends: the median of tokens a second over the later half of its steps, how far a loss is from that of eager's
first run at most, the last loss, memory, and the seconds of the whole run. ``ARGUMENT``: for the example (``--width 1024``). The script
fails where a run of opmill does, or its losses are further from eager's than torch.compile's by more than a factor of three and a floor."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "train_sharded.py"
FLOOR = 3e-2
"""Of losses in bfloat16."""
REASON = 1500
"""Characters."""
STEP = re.compile(r"step (\d+) +loss (\S+) +([\d,]+) tokens/s +(\S+) GiB")


def environments(size: int) -> list[dict[str, str]]:
    """What torchrun tells each process."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    if torch.cuda.device_count() < size:
        shared |= {"CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]


def run(compiler: str, size: int, limit: float, arguments: Sequence[str]) -> dict[str, Any]:
    """What the first process says of each step, and ``failed``, where one fails or ``limit`` seconds are over."""
    command = [sys.executable, "-W", "ignore", str(EXAMPLE), "--compiler", compiler, *arguments]
    begin, failed = time.perf_counter(), ""
    with contextlib.ExitStack() as files:
        written = [[files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)] for _ in range(size)]
        running = [
            subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            for environment, (out, err) in zip(environments(size), written, strict=True)
        ]
        try:
            while any(p.poll() is None for p in running) and not any(p.poll() for p in running):
                if time.perf_counter() - begin > limit:
                    failed = f"not done after {limit:.0f} s"
                    break
                time.sleep(0.05)
        finally:
            codes = [p.poll() for p in running]
            for process in running:
                process.kill()
                process.wait()
        for rank, code in enumerate(codes):
            written[rank][1].seek(0)
            if code:
                failed += f" rank {rank} ended with {code}: {written[rank][1].read()[-REASON:]}"
        written[0][0].seek(0)
        steps = STEP.findall(written[0][0].read())
    return {
        "losses": {int(number): float(loss) for number, loss, _, _ in steps},
        "rates": [float(rate.replace(",", "")) for _, _, rate, _ in steps],
        "GiB": max((float(gib) for *_, gib in steps), default=0.0),
        "seconds": time.perf_counter() - begin,
        "failed": failed.strip(),
    }


def row(compiler: str, said: dict[str, Any], eager: dict[int, float]) -> dict[str, Any]:
    """What is printed of a run."""
    losses, rates = said["losses"], said["rates"]
    found: dict[str, Any] = {"example": compiler, "done": len(losses), "seconds": round(said["seconds"], 1), "GiB": said["GiB"]}
    if rates:
        found |= {"tokens/s": statistics.median(rates[len(rates) // 2 :]), "last loss": list(losses.values())[-1]}
    both = losses.keys() & eager.keys()
    if both:
        found["from eager"] = max(abs(losses[step] - eager[step]) for step in both)
    return found | ({"failed": said["failed"]} if said["failed"] else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--compilers", nargs="+", default=["eager", "torch", "opmill"])
    options, arguments = parser.parse_known_args()
    order, eager = list(options.compilers), dict[int, float]()
    rows: list[dict[str, Any]] = []
    for _ in range(options.rounds):
        for compiler in order:
            said = run(compiler, options.processes, options.limit, arguments)
            if compiler == "eager":
                eager = eager or said["losses"]
            rows.append(row(compiler, said, eager))
            print(json.dumps(rows[-1]), flush=True)
        order.reverse()
    rates = {c: statistics.median(r["tokens/s"] for r in rows if r["example"] == c and "tokens/s" in r) for c in order if _ran(rows, c)}
    apart = {c: max(r.get("from eager", 0.0) for r in rows if r["example"] == c) for c in order}
    ratios = {f"opmill / {c}": round(rates["opmill"] / rate, 3) for c, rate in rates.items() if c != "opmill" and "opmill" in rates}
    print(json.dumps({"example": "tokens a second", **ratios}), flush=True)
    failed = any("failed" in r for r in rows if r["example"] == "opmill")
    raise SystemExit("failed, or other losses" if failed or apart.get("opmill", 0) > 3 * apart.get("torch", 0) + FLOOR else 0)


def _ran(rows: Sequence[dict[str, Any]], compiler: str) -> bool:
    return any("tokens/s" in row for row in rows if row["example"] == compiler)


if __name__ == "__main__":
    main()
