"""Several processes: DistributedDataParallel, fully sharded parameters, exchanges in compiled code; against eager in the same processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

PROGRAMS = Path(__file__).with_name("distributed_programs.py")


def together(folder: Path, backend: str, size: int = 2) -> list[str]:
    """What each process says of each program."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "OPMILL_CACHE_DIR": str(folder / "cache")}
    if backend == "gloo":
        environment["CUDA_VISIBLE_DEVICES"] = ""  # models are on the processor, and torch would place fully sharded parameters on GPUs
    commands = [[sys.executable, str(PROGRAMS), str(rank), str(size), str(folder / "store"), backend] for rank in range(size)]
    running = [subprocess.Popen(c, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for c in commands]
    try:
        said = [process.communicate(timeout=300) for process in running]
    finally:
        for process in running:
            process.kill()
    assert all(process.returncode == 0 for process in running), [
        (process.returncode, err[-2000:]) for process, (_, err) in zip(running, said, strict=True)
    ]
    return [line for out, _ in said for line in out.splitlines()]


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
def test_two_processes(tmp_path: Path) -> None:
    lines = together(tmp_path, "gloo")
    assert lines and not [line for line in lines if not line.endswith(": right")]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")
def test_two_devices(tmp_path: Path) -> None:
    lines = together(tmp_path, "nccl")
    assert lines and not [line for line in lines if not line.endswith(": right")]


LETTING_GO = """
import atexit, os

def threads():
    names = [open(f"/proc/self/task/{thread}/comm").read() for thread in os.listdir("/proc/self/task")]
    return [name for name in names if "gloo" in name]

atexit.register(lambda: print(threads()))  # registered first, called last
import torch, opmill
import torch.distributed as dist

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
compiled = opmill.compile(lambda x: x + dist.get_world_size(), fullgraph=True)
assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
assert threads()
dist.destroy_process_group()
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not dist.is_gloo_available(), reason="needs gloo, and threads that can be listed"
)
def test_no_thread_of_a_process_group_outlives_the_interpreter(script) -> None:
    """Guards hold the process group. A thread of it that drops a tensor while the interpreter ends aborts the process (torch, CPython 3.11)."""
    assert script(LETTING_GO, GLOO_SOCKET_IFNAME="lo").strip() == "[]"
