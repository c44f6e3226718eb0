"""The pipeline is a list that runs: each step can be found, shows what it gives, and what it gives is read back where that has a text."""

import warnings
from pathlib import Path

import pytest
import torch

from opmill_graph_ir import pipeline
from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.options import GraphOptions
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store

F = torch.nn.functional
STEPS = list(pipeline.steps())
DOCS = Path(__file__).resolve().parents[3] / "docs" / "architecture.md"


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x):
        return (F.dropout(F.gelu(self.norm(self.linear(x))), 0.1, self.training) @ x.T, x.exp().T)


class Claims:
    """A generator that takes every kernel until it is to be built, so that all steps up to there run."""

    name = "claims"

    def available(self):
        return None

    def claims(self, kernel, options):
        return None

    def build(self, kernels, options, store):
        return [KernelRef("none", "none", f"{kernel.name} {hash(kernel)}", "k") for kernel in kernels]

    def text(self, kernel, options):
        return f"text of {kernel.name}"


def _compiled(tmp_path, module, *inputs, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = torch.fx.symbolic_trace(module)
        binder = lambda plan, held, store: lambda *inputs: ()  # noqa: E731
        return compile_graph(
            graph, list(inputs), options=GraphOptions(**options), store=Store(tmp_path), generators=[Claims()], binder=binder
        )


def test_names_are_unique_and_every_step_can_be_found():
    assert len(set(pipeline.NAMES)) == len(pipeline.NAMES)
    for step in STEPS:
        assert callable(pipeline.found(step.run)), step.name
        assert step.takes in pipeline.REPRESENTATIONS and step.gives in pipeline.REPRESENTATIONS


def test_every_representation_shows_and_all_but_texts_of_generators_are_read_back():
    for name, form in pipeline.REPRESENTATIONS.items():
        assert all(callable(pipeline.found(f)) for f in (form.show, form.parse, form.verify) if f), name
    assert [n for n, form in pipeline.REPRESENTATIONS.items() if not form.parse] == ["kernel texts"]
    assert [n for n, form in pipeline.REPRESENTATIONS.items() if not form.verify] == ["kernel texts"]


def test_each_step_takes_what_one_before_gives():
    made = {"FX graph"}
    for step in STEPS:
        assert step.takes in made, step.name
        made.add(step.gives)


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_every_step_shows_what_it_gives(training, tmp_path, capsys):
    """Forward and backward under names of their own."""
    with torch.set_grad_enabled(training):
        _compiled(tmp_path, Layer(), torch.randn(8, 8), print_after=("all",), verify=True)
    shown = {line.removeprefix("# after ") for line in capsys.readouterr().err.splitlines() if line.startswith("# after ")}
    names = {name.partition(" (")[0] for name in shown}
    silent = {"load", "bodies", "operators", *(s.name for s in STEPS if s.when == ("inference" if training else "training"))}
    assert names == set(pipeline.NAMES) - silent
    if training:
        for step in ("partition", "lower", "fuse", "schedule", "generate", "plan"):
            assert {f"{step} (forward)", f"{step} (backward)"} <= shown


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_what_steps_give_is_read_back(training, tmp_path, monkeypatch):
    """Whatever runs between two steps, its text is that of what is read from it, which obeys the laws."""
    seen = []

    def observe(step, made, options):
        form = pipeline.REPRESENTATIONS[step.gives]
        for _, program in made:
            if form.parse:
                text = pipeline.found(form.show)(program)
                again = pipeline.found(form.parse)(text)
                pipeline.found(form.verify)(again)
                assert pipeline.found(form.show)(again) == text, step.name
                seen.append(step.name)

    monkeypatch.setattr(pipeline, "_observe", observe)
    with torch.set_grad_enabled(training):
        _compiled(tmp_path, Layer(), torch.randn(8, 8))
    assert {"graph", "repeats", "lower", "dce", "cse", "inline", "fuse", "emit", "schedule", "plan"} <= set(seen)


def test_texts_of_kernels_are_those_of_their_generator(tmp_path, capsys):
    with torch.no_grad():
        _compiled(tmp_path, Layer(), torch.randn(8, 8), print_after=("generate",))
    shown = capsys.readouterr().err
    assert "# claims: " in shown and "text of " in shown


def test_laws_are_checked_between_steps(tmp_path, monkeypatch):
    """A pass that loses a statement is found right behind it."""
    from opmill_graph_ir.schedule import cse

    def loses_the_first(program):
        del program.statements[0]

    monkeypatch.setattr(cse, "remove_common", loses_the_first)
    with torch.no_grad(), pytest.raises(GraphError, match="GI041: a program of loops breaks a law: .* is read before it is written"):
        _compiled(tmp_path, Layer(), torch.randn(8, 8), verify=True)


def test_a_graph_that_came_in_disorder_is_told_so(tmp_path):
    """Before any other step looks at it."""
    graph = torch.fx.symbolic_trace(Layer())
    *_, last, output = graph.graph.nodes
    output.append(last)
    binder = lambda plan, held, store: lambda *inputs: ()  # noqa: E731
    with torch.no_grad(), pytest.raises(GraphError, match="GI041: an FX graph breaks a law: .*before it has been defined"):
        compile_graph(
            graph, [torch.randn(8, 8)], options=GraphOptions(verify=True), store=Store(tmp_path), generators=[Claims()], binder=binder
        )


@pytest.mark.skipif(not DOCS.exists(), reason="not in the repository")
def test_the_list_stands_in_the_docs():
    """``opmill pipeline`` prints it."""
    assert pipeline.described() in DOCS.read_text()
