"""Processes that run one script together, joined by gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def together(
    program: Path,
    folder: Path,
    *arguments: str,
    size: int = 2,
    backend: str = "gloo",
    limit: float = 300,
    codes: tuple[int, ...] = (),
) -> list[str]:
    """The lines that ``python PROGRAM RANK SIZE STORE ARGUMENTS`` prints on every rank. All are ended after ``limit`` seconds; fails where one
    ends with another code than that of ``codes``, 0 where there are none."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "OPMILL_CACHE_DIR": str(folder / "cache")}
    if backend == "gloo":
        environment["CUDA_VISIBLE_DEVICES"] = ""  # models are on the processor, and torch would place fully sharded parameters on GPUs
    commands = [[sys.executable, str(program), str(rank), str(size), str(folder / "store"), *arguments] for rank in range(size)]
    running = [subprocess.Popen(c, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for c in commands]
    try:
        said = [process.communicate(timeout=limit) for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == list(codes or [0] * size), [
        (process.returncode, err[-2000:]) for process, (_, err) in zip(running, said, strict=True)
    ]
    return [line for out, _ in said for line in out.splitlines()]
