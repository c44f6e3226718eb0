"""Which backend gets the graphs, with what arguments, and what happens when it fails."""

import errno
import importlib.metadata
import subprocess
import sys
import warnings

import pytest
import torch

import opmill
from opmill import discover
from opmill.compile import record_of
from opmill.errors import warn_once
from opmill.native import loaded_generators
from opmill.options import Options

X = torch.linspace(-2, 2, 6)


def square_sum(x):
    return (x * x + 1).sum()


def test_a_callable_gets_graph_and_real_inputs():
    got = []

    def backend(graph_module, example_inputs):
        got.append((graph_module, example_inputs))
        return graph_module.forward

    assert torch.equal(opmill.compile(square_sum, backend=backend)(X), square_sum(X))
    [(graph_module, inputs)] = got
    assert isinstance(graph_module, torch.fx.GraphModule) and len(inputs) == 1 and torch.equal(inputs[0], X)


def test_a_foreign_backend_gets_mode_and_options_as_given():
    got = {}

    def backend(graph_module, example_inputs, **keywords):
        got.update(keywords)
        return graph_module.forward

    opmill.compile(square_sum, backend=backend, mode="max-autotune", options={"anything": 1})(X)
    assert got == {"mode": "max-autotune", "options": {"anything": 1}}


def test_listed_backends_are_those_of_the_entry_points():
    assert {"eager", "opmill"} <= set(opmill.list_backends())
    assert discover.find_backend("eager") is discover.eager


def test_a_failing_native_backend_warns_and_runs_the_graph(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no luck")

    monkeypatch.setattr("opmill.native.native_compiler", lambda options: broken)
    warn_once.cache_clear()
    with pytest.warns(opmill.OpmillWarning, match="OM011.*RuntimeError: no luck"):
        assert torch.equal(opmill.compile(square_sum)(X), square_sum(X))


def test_an_error_of_the_compiler_is_raised_where_that_is_asked_for(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no luck")

    monkeypatch.setattr("opmill.native.native_compiler", lambda options: broken)
    with pytest.raises(RuntimeError, match="no luck"):
        opmill.compile(square_sum, options={"suppress_errors": False})(X)


def test_a_graph_that_is_refused_runs_whoever_asks_for_errors():
    def shared(x, y):
        x.add_(1)
        return x + y

    x = torch.zeros(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opmill.compile(shared, options={"suppress_errors": False})(x, x[:])
    assert torch.equal(x, torch.ones(4))


def test_generators_that_fail_to_load_are_named_with_the_reason(monkeypatch):
    class Entry:
        name = "bad"

        def load(self):
            raise ImportError("its library is missing")

    monkeypatch.setattr(discover, "_entries", lambda group: {"bad": Entry()})
    [found] = discover.find_generators()
    assert found.generator is None and found.reason == "ImportError: its library is missing"
    with pytest.raises(ValueError, match="OM007.*'bad'"):
        discover.find_generators(["other"])
    with pytest.warns(opmill.OpmillWarning, match="OM010.*'bad'.*its library is missing"):
        assert loaded_generators(Options()) == []


SCRIPT = """
import sys, warnings, torch
warnings.simplefilter("ignore")
before = set(sys.modules)
import opmill
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()
compiled = opmill.compile(model, backend={backend!r})
with torch.no_grad():
    x = torch.randn(2, 4)
    assert torch.allclose(compiled(x), model(x), atol=1e-6)
print(sorted(name for name in set(sys.modules) - before if name in ("torch._dynamo", "torch._inductor")))
"""


@pytest.mark.parametrize("backend", ["eager", "opmill"])
def test_torchs_own_compiler_is_not_imported(backend, tmp_path):
    script = SCRIPT.format(backend=backend)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_importing_opmill_loads_no_graph_compiler():
    script = "import sys, opmill; print(sorted(n for n in sys.modules if n in ('torch._dynamo', 'torch._inductor', 'rich', 'sympy', 'opmill_graph_ir', 'opmill_bytecode_frontend')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("kind", ["eager", "callable"])
def test_sizes_that_only_data_tell_go_to_backends_that_take_them(kind):
    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module.forward

    def chosen(x):
        return x[x > 0] * 2, len(x[x > 1])

    if kind == "callable":
        with pytest.raises(Exception, match="FE030"):
            opmill.compile(chosen, backend=backend, fullgraph=True)(X)
        backend.sizes_of_data = True
        opmill.reset()  # of one function and backend there is one capture, which has asked
    got, count = opmill.compile(chosen, backend="eager" if kind == "eager" else backend, fullgraph=True)(X)
    assert torch.equal(got, chosen(X)[0]) and count == 2 and len(graphs) == (kind == "callable")


def test_a_graph_that_cannot_be_compiled_now_is_compiled_by_the_next_call(monkeypatch):
    failing = [OSError(errno.EMFILE, "Too many open files"), MemoryError()]

    def backend(graph_module, example_inputs, **told):
        if failing:
            raise failing.pop()
        return graph_module.forward

    monkeypatch.setattr("opmill.native.native_compiler", lambda options: backend)
    compiled = opmill.compile(square_sum)
    for _ in range(4):
        assert torch.equal(compiled(X), square_sum(X))
    assert not failing
    assert [graph.fallback for graph in record_of(compiled)[1].graphs] == [""]


def test_what_is_installed_is_looked_up_once_for_a_path(monkeypatch, tmp_path):
    """Looking it up took most of what compiling a further module of a known kind costs."""
    opmill.compile(torch.nn.Linear(2, 2))
    asked = []
    original = importlib.metadata.EntryPoints.select
    monkeypatch.setattr(importlib.metadata.EntryPoints, "select", lambda self, **named: asked.append(named) or original(self, **named))
    opmill.compile(torch.nn.Linear(2, 2), backend="opmill", fullgraph=True)
    assert asked == []
    folder = tmp_path / "other-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[torch_dynamo_backends]\nother = builtins:print\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "other" in discover.list_backends()
