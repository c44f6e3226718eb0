"""Processes that share a store compile each graph once, and none waits for one that is gone or stands still."""

import json
import subprocess
import sys

import pytest

RANKS = """
import json, multiprocessing, os, sys, warnings
import torch
from opmill_graph_ir import compiling
from opmill_graph_ir.backend import compile_graph
from opmill_runtime_cache.store import Remote, Store
from opmill_runtime_cache.store.remote import Limits, secret_from

torch.set_num_threads(1)
GRAPHS = [torch.fx.symbolic_trace(f) for f in (lambda x: (x.sin() + 1, x @ x), lambda x: (x.exp().sum(0),))]


def compiled(root, url, wait):
    # What this process compiled itself, and its warnings.
    remote = Remote(url, secret_from("s" * 32), Limits(answer=120.0, look=0.01)) if url else None
    store, made = Store(root, lock_timeout_s=wait, remote=remote), []
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number, graph in enumerate(GRAPHS):
            x = torch.linspace(0, 1, 16).reshape(4, 4)
            run = compile_graph(graph, [x], store=store, generators=())
            assert all(torch.equal(a, b) for a, b in zip(run(x), graph(x), strict=True))
            if not run.report.cached:
                made.append(number)
    if remote is not None:
        remote.flush()
    return made, sorted({str(w.message)[:7] for w in caught if "RC0" in str(w.message)})


def rank(start, answer, *arguments):
    start.wait()
    answer.send(compiled(*arguments))


def stopped(answer, *arguments):
    def functional(state):
        answer.send("compiling")
        while True:
            multiprocessing.Event().wait()

    compiling.functional = functional
    compiled(*arguments)


def started(function, *arguments):
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=function, args=(*arguments[:-1], there, *arguments[-1]), daemon=True)
    process.start()
    there.close()
    return process, here


def said(answer):
    assert answer.poll(100)
    return answer.recv()


multiprocessing.set_start_method("fork")
roots, url, wait, first = json.loads(sys.argv[1])
start = multiprocessing.Event()
if first:
    process, answer = started(stopped, (roots[0], url, wait))
    assert said(answer) == "compiling"
others = [started(rank, start, (root, url, wait)) for root in roots]
start.set()
if first == "killed":
    process.kill()
    process.join()
print(json.dumps([said(answer) for _, answer in others]))
"""


def ranks(roots, url="", wait=100.0, first=""):
    """The numbers of the graphs that each process compiled itself, and its warnings. ``first``: what becomes of another one that began."""
    arguments = json.dumps([[str(root) for root in roots], url, wait, first])
    done = subprocess.run([sys.executable, "-c", RANKS, arguments], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("processes", [8], ids="{} processes".format)
def test_one_compile_on_one_machine(tmp_path, processes):
    found = ranks([tmp_path] * processes)
    assert sorted(graph for made, _ in found for graph in made) == [0, 1]
    assert not any(warnings for _, warnings in found)


def test_one_compile_on_many_machines(tmp_path):
    pytest.importorskip("fsspec")
    found = ranks([tmp_path / str(rank // 2) for rank in range(6)], f"file://{tmp_path}/shared")
    assert sorted(graph for made, _ in found for graph in made) == [0, 1]
    assert not any(warnings for _, warnings in found)


def test_one_that_is_killed_while_compiling(tmp_path):
    found = ranks([tmp_path] * 2, first="killed")
    assert sorted(graph for made, _ in found for graph in made) == [0, 1]
    assert not any(warnings for _, warnings in found)


def test_one_that_stands_still_while_compiling(tmp_path):
    found = ranks([tmp_path] * 2, wait=0.1, first="stands still")
    assert {graph for made, _ in found for graph in made} == {0, 1}
    assert all(warnings == ["[RC067]"] for made, warnings in found if 0 in made)
