"""Several processes: DistributedDataParallel, fully sharded parameters, exchanges in compiled code; against eager in the same processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from processes import together

PROGRAMS = Path(__file__).with_name("distributed_programs.py")


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
def test_two_processes(tmp_path: Path) -> None:
    lines = "".join(together(PROGRAMS, tmp_path)).splitlines()
    assert lines and not [line for line in lines if not line.endswith(": right")]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")
def test_two_devices(tmp_path: Path) -> None:
    lines = "".join(together(PROGRAMS, tmp_path, "nccl", backend="nccl")).splitlines()
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
    """Guards hold the process group. A thread of it that drops a tensor while the interpreter ends aborts the process (torch, CPython
    3.11)."""
    assert script(LETTING_GO, GLOO_SOCKET_IFNAME="lo").strip() == "[]"
