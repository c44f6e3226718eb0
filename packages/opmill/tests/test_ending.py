"""What is waited for when the interpreter ends."""

import os
import subprocess
import sys

import pytest
import torch.distributed as dist

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not dist.is_available() or not dist.is_gloo_available(),
    reason="needs gloo, and threads that can be listed",
)

BUSY = """
import threading
import time
import torch
import torch.distributed as dist
import opmill
from opmill.ending import _threads, wait_for_threads

assert wait_for_threads() and not list(_threads())
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
held = dist.group.WORLD
for _ in range(4):
    dist.all_reduce(torch.ones(2))  # threads have their names by now
assert wait_for_threads() and list(_threads())

def busy(future):
    end = time.thread_time() + 0.5
    while time.thread_time() < end:
        sum(range(100_000))
    print("done", flush=True)

told = []
def until_told(future):
    while not told:
        sum(range(1_000))
    print("done", flush=True)

def exchange(work=busy):
    # in a thread of the group: one that is over before it is heard of is made again
    while True:
        begun, here = threading.Event(), []

        def done(future):
            here.append(threading.current_thread() is threading.main_thread())
            begun.set()
            if not here[0]:
                work(future)

        dist.all_reduce(torch.ones(2), async_op=True).get_future().add_done_callback(done)
        assert begun.wait(60)
        if not here[0]:
            return
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run([sys.executable, "-c", BUSY + code], env=environment, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("how", ["", "raise RuntimeError('own')"], ids=["ends", "fails"])
def test_a_thread_of_a_group_that_is_busy_is_waited_for(how: str) -> None:
    """The group outlives the interpreter, as one that a mesh holds does, and its thread wants the interpreter once more."""
    done = run(f"exchange()\ndist.destroy_process_group()\n{how}")
    assert (done.stdout, done.returncode) == ("done\n", int("own" in how)), done.stderr[-2000:]


def test_waiting_has_a_limit() -> None:
    done = run(
        "exchange(until_told)\nassert not wait_for_threads(0)\ntold.append(1)\nassert wait_for_threads(60)\ndist.destroy_process_group()"
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr[-2000:]
