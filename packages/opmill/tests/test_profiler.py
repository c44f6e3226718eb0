"""torch.profiler looks at compiled programs: regions of graphs, kernels, the program's own labels."""

import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import opmill

pytest.importorskip("opmill_kernel_gen_cpp")


def events(run, *args) -> list[tuple[str, ...]]:
    """Names on the way from the outermost to each event."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        run(*args)
    told = []
    for event in found.events():
        path, parent = [event.name], event.cpu_parent
        while parent is not None:
            path.insert(0, parent.name)
            parent = parent.cpu_parent
        told.append(tuple(path))
    return told


class Layers(torch.nn.Module):
    """More of them than are scheduled one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(9))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            with record_function(f"layer {number}"):
                with record_function("linear"):
                    y = layer(x)
                with record_function("norm"):
                    x = torch.nn.functional.layer_norm(x + y.relu(), (16,))
        return x


@pytest.mark.parametrize("grad", [False, True])
def test_labels_of_layers_are_around_their_own_kernels(grad):
    model, x = opmill.compile(Layers()), torch.randn(4, 16)
    with torch.set_grad_enabled(grad):
        model(x)
        found = events(model, x)
    paths = [path[1:] if grad else path for path in found if any(name.startswith("opmill::forward") for name in path)]
    labels = [path[1:] for path in paths if path[-1].startswith(("layer", "linear", "norm"))]
    assert labels == [p for k in range(9) for p in ((f"layer {k}",), (f"layer {k}", "linear"), (f"layer {k}", "norm"))]
    for k in range(9):
        inside = [path[-1] for path in paths if len(path) > 2 and path[1] == f"layer {k}"]
        assert any("addmm" in name for name in inside) and any("native_layer_norm" in name for name in inside), inside


def test_the_region_tells_where_the_graph_begins():
    model, x = opmill.compile(Layers()), torch.randn(4, 16, requires_grad=True)
    model(x).sum().backward()
    line = Layers.forward.__code__.co_firstlineno + 4
    names = [path[-1] for path in events(lambda: model(x).sum().backward())]
    assert f"opmill::forward test_profiler.py:{line}" in names and f"opmill::backward test_profiler.py:{line}" in names


def test_a_plan_from_the_cache_tells_of_this_program(tmp_path):
    def here(x):
        return x.sin() * 2

    def there(x):
        return x.sin() * 2

    x, options = torch.randn(8), opmill.Options(cache_dir=str(tmp_path))
    for function in (here, there):
        compiled = opmill.compile(function, options=options)
        compiled(x)
        line = function.__code__.co_firstlineno + 1
        names = [path[-1] for path in events(compiled, x)]
        assert names == [f"opmill::forward test_profiler.py:{line}", f"opmill::sin+mul test_profiler.py:{line}"]
    [graph] = opmill.explain(compiled)(x).graphs
    assert graph.report.cached


def test_a_profiler_changes_neither_graphs_nor_results():
    def labelled(x):
        with record_function("mine"):
            return x.exp() + 1

    compiled, x = opmill.compile(labelled, fullgraph=True), torch.randn(8)
    events(compiled, x)
    with profile(activities=[ProfilerActivity.CPU]):
        watched = compiled(x)
    told = opmill.explain(compiled)(x)
    assert torch.equal(watched, told.result) and len(told.graphs) == 1 and not told.recompiles


def test_a_chrome_trace_has_kernels_and_labels(tmp_path):
    model, x = opmill.compile(Layers()), torch.randn(4, 16)
    with torch.no_grad():
        model(x)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
            model(x)
    found.export_chrome_trace(str(tmp_path / "trace.json"))
    told = {event["name"]: event for event in json.loads(Path(tmp_path / "trace.json").read_text())["traceEvents"]}
    assert told["layer 3"]["cat"] == "user_annotation"
    kernel = next(event for name, event in told.items() if name.startswith("opmill::relu"))
    assert kernel["cat"] == "cpu_op" and [4, 16] in kernel["args"]["Input Dims"]
