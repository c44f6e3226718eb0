"""What a report says of a compile: seconds of its steps, and of imports between them."""

import pytest
import torch
from torch import fx

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.report import Report
from opmill_runtime_cache.store import Store


def sine() -> fx.GraphModule:
    graph = fx.Graph()
    graph.output((graph.call_function(torch.sin, (graph.placeholder("x"),)),))
    return fx.GraphModule(torch.nn.Module(), graph)


def test_imports_are_a_step_of_their_own():
    report = Report()
    assert not report.imported(1e-4) and report.phases == {}
    assert report.imported(0.5) and report.imported(0.25) and report.phases == {"import": 0.75}


@pytest.mark.filterwarnings("ignore:GI030")  # there is no generator
def test_imports_are_shown_to_who_observes(monkeypatch, tmp_path):
    monkeypatch.setattr(Report, "imported", lambda report, seconds: True)
    seen = []

    def observe(step, made, seconds, show):
        seen.append((step.name, len(made)))

    compile_graph(sine(), [torch.ones(3)], report=Report(), generators=[], store=Store(tmp_path), observe=observe)
    assert ("import", 0) in seen and ("functionalize", 1) in seen
