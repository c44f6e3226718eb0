"""What is shown while something is compiled."""

import io
import logging
import re
import sys
import threading

import pytest
import torch

import opmill
from opmill import progress as module
from opmill.backend import _far
from opmill.progress import progress
from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.generator.protocol import BuildProgress
from opmill_graph_ir.report import Report
from opmill_runtime_cache.store import Store

WAIT_S = 120
"""What a test waits at most for a thread that says something at once."""


class Collected(logging.Handler):
    """The lines that were logged; ``enough`` is set by the second, ``inside`` by the first of what ``test_what_is_inside`` waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.lines, self.enough, self.inside = [], threading.Event(), threading.Event()

    def emit(self, record) -> None:
        self.lines.append(record.getMessage())
        if len(self.lines) >= 2:
            self.enough.set()
        if self.lines[-1].startswith("compiles"):
            self.inside.set()


@pytest.fixture
def collected(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    handler, logger = Collected(), logging.getLogger("opmill.progress")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_the_log_says_how_far_it_is(collected):
    numbers = iter(range(10**9))
    with progress(lambda: f"step {next(numbers)}", None, every=0.001):
        assert collected.enough.wait(WAIT_S)
    assert collected.lines[0].startswith("step 0, since ") and collected.lines[1].startswith("step 1, since ")


def test_what_is_inside_is_told_in_the_same_line(collected):
    with progress(lambda: "reads", None, every=0.001), progress(lambda: "compiles", None, every=0.001):
        # what is outside may have been told first: the thread may be quicker than the second block is entered
        assert collected.inside.wait(WAIT_S)
        within = threading.active_count()
    assert re.fullmatch("(reads )*(compiles )+(reads )*", "".join(line.partition(",")[0] + " " for line in collected.lines))
    with progress(lambda: "reads", None, every=0.001):
        assert threading.active_count() >= within - 1, "one thread told both"


def test_what_cannot_be_told_is_no_failure(collected):
    with progress(lambda: 1 / 0, None, every=0.001):
        assert collected.enough.wait(WAIT_S)
    assert collected.lines[0].startswith("opmill compiles")


@pytest.mark.parametrize("wanted", [None, False])
def test_nothing_starts_where_nobody_looks(wanted, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(module.threading, "Thread", None)
    monkeypatch.setattr(module.threading, "Timer", None)
    with progress(lambda: "", wanted):
        pass


def test_a_graph_tells_its_step():
    report = Report()
    assert _far(3, 40, [report]) == "opmill compiles graph 3 (40 operators)"
    with report.step("lower"):
        assert _far(3, 40, [report]) == "opmill compiles graph 3 (40 operators): lower, 0 steps done"
    report.wanted = 7
    with report.step("generate"):
        assert _far(3, 40, [report]) == "opmill compiles graph 3 (40 operators): generate, 7 kernels, 1 steps done"
    assert _far(1, 2, []) == "opmill compiles graph 1 (2 operators)"


def test_time_left_is_told_once_something_is_built():
    report, progress = Report(wanted=7), BuildProgress()
    report.progress = (progress,)
    with report.step("generate"):
        progress.begin(20)
        assert report.built() is None
        progress.add(5)
        report.begun -= 10.0  # for a quarter of the work
        part, left = report.built()
        assert part == 0.25 and 30 <= left < 40
        assert re.fullmatch(r".*generate, 7 kernels, 25% built, about 3\d s left, 0 steps done", _far(3, 40, [report]))
        report.begun -= 1000.0
        assert "about 51 min left" in _far(3, 40, [report]) or "about 50 min left" in _far(3, 40, [report])
        progress.add(15)
        assert report.built() is None and (progress.wanted, progress.done) == (0, 0)
    assert report.built() is None


def test_generators_count_what_they_build(tmp_path):
    generator = pytest.importorskip("opmill_kernel_gen_cpp.generator").CppKernelGenerator()
    told, add = [], generator.progress.add
    generator.progress.add = lambda pieces: (told.append((pieces, generator.progress.wanted)), add(pieces))
    graph = torch.fx.symbolic_trace(lambda x: (torch.exp(x) * 2,))
    compile_graph(graph, [torch.ones(9)], store=Store(tmp_path), generators=[generator])
    assert told and sum(pieces for pieces, _ in told) == told[0][1] and generator.progress.wanted == 0


def test_it_is_told_of_a_compile(monkeypatch):
    told = []
    monkeypatch.setattr("opmill.backend._far", lambda *known: told.append(known) or "")

    class Asked(module._Spinner):
        def begin(self) -> None:
            """Nothing is shown."""

        def inside(self, what):  # a graph is compiled while its code is read
            module._text(what)
            return super().inside(what)

    monkeypatch.setattr(module, "_Spinner", Asked)
    compiled = opmill.compile(lambda x: x * 2, options={"progress": True, "cache": False})
    compiled(torch.ones(2))
    [(number, operators, seen)] = told
    assert (number, operators) == (0, 1) and "load" in seen[0].phases
