"""``fork()`` while another thread compiles for the first time: the child compiles too."""

PROGRAM = """
import gc, os, signal, sys, threading
import torch, opmill, opmill_fake_tensors

STEP, BOUND_S = 6_000, 100
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
x = torch.randn(3, 8)
want = model(x).detach()
there, leave = threading.Event(), threading.Event()
os.register_at_fork(before=leave.set)  # last registered, first called: the other thread goes on when the fork has begun
calls, next_stop, compiled = 0, STEP, False


def stop_at(frame, event, arg):
    global calls, next_stop
    calls += event == "call"
    if calls >= next_stop:
        next_stop = float("inf")
        leave.clear()
        there.set()
        assert leave.wait(BOUND_S)


def compiling():
    global compiled
    sys.setprofile(stop_at)
    try:
        opmill.compile(model)(x)
    finally:
        sys.setprofile(None)
        compiled = True
        there.set()


def in_child():
    signal.alarm(BOUND_S)
    status = 1
    try:
        status = 0 if torch.allclose(opmill.compile(model, fullgraph=True)(x), want, atol=1e-5) and gc.isenabled() else 2
    finally:
        os._exit(status)


thread = threading.Thread(target=compiling)
thread.start()
children = []
while True:
    assert there.wait(BOUND_S)
    there.clear()
    if compiled:
        break
    child = os.fork() or in_child()
    next_stop = calls + STEP  # before the child is waited for: the compile may end while it runs
    assert os.waitpid(child, 0)[1] == 0, f"forked at call {calls}"
    children.append(child)
thread.join(BOUND_S)
assert torch.allclose(opmill.compile(model)(x), want, atol=1e-5) and gc.isenabled() and not thread.is_alive()
print(len(children))
"""


def test_a_child_forked_anywhere_in_the_first_compile_compiles(script):
    assert int(script(PROGRAM, OMP_NUM_THREADS="1")) >= 2


HEARING = """
import os, threading, warnings
import torch
from opmill_bytecode_frontend.values.warned import hearing

there, leave = threading.Event(), threading.Event()


def elsewhere():
    with hearing(always=True):
        there.set()
        assert leave.wait(60)


thread = threading.Thread(target=elsewhere)
thread.start()
assert there.wait(60)
child = os.fork()
if not child:
    shown = warnings.filters[0][0] != "always" and not torch.is_warn_always_enabled()
    with hearing(always=True) as heard:
        warnings.warn("heard")
    os._exit(0 if shown and len(heard) == 1 else 1)
print(os.waitpid(child, 0)[1])
leave.set()
thread.join()
"""


def test_a_child_forked_while_another_thread_hears_warnings_has_its_own(script):
    assert int(script(HEARING)) == 0
