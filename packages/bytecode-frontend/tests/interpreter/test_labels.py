"""Labels for profilers (``record_function``, ranges of nvtx): captured programs show those that the programs show, around the same."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.effects.labels import labelled

USER = {"sin", "cos", "exp", "mul", "add", "neg", "item"}


def seen(run, *args) -> list[str]:
    """Labels and operators in order, inner ones behind dots."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        run(*args)
    told = []
    for event in found.events():
        depth, parent = 0, event.cpu_parent
        while parent is not None:
            depth, parent = depth + 1, parent.cpu_parent
        name = event.name.removeprefix("aten::")
        if event.name.startswith("label") or (name in USER and (event.cpu_parent is None or event.cpu_parent.name.startswith("label"))):
            told.append(". " * depth + name)
    return told


def one(x):
    with record_function("label"):
        y = x.sin()
    return y.cos()


def inside(x):
    with record_function("label a"):
        x = x.sin()
        with record_function("label b"):
            x = x.cos()
        x = x.exp()
    with record_function("label c"):
        with record_function("label d"):
            x = x.neg()
    return x


def empty(x):
    with record_function("label a"):
        pass
    x = x.sin()
    with record_function("label b"):
        with record_function("label c"):
            pass
    return x


@record_function("label decorated")
def decorated(x):
    return helper(x) * helper(x)


@record_function("label helper")
def helper(x):
    return x.sin()


def in_a_loop(x):
    for k in range(3):
        with record_function(f"label {k}"):
            x = x.sin()
    return x


def by_hand(x):
    region = torch.autograd.profiler.record_function("label")
    region.__enter__()
    x = x.sin()
    region.__exit__(None, None, None)
    return x.cos()


def raises(x):
    try:
        with record_function("label"):
            x = x.sin()
            raise ValueError
    except ValueError:
        x = x.cos()
    return x


def no_graph(x):
    with record_function("label"):
        pass
    return x


@pytest.mark.parametrize("program", [one, inside, empty, decorated, in_a_loop, by_hand, raises, no_graph])
def test_labels_stay_where_they_were(program):
    captured, x = capture(program, "eager", fullgraph=True), torch.rand(4)
    captured(x)
    assert seen(captured, x) == seen(program, x)


def breaks_inside(x):
    with record_function("label a"):
        x = x.sin()
        with record_function("label b"):
            x = x.cos()
            if x.sum().item() > 1000:
                x = x.exp()
            x = x.neg()
        x = x.exp()
    return x * 2


def breaks_in_a_helper(x):
    with record_function("label a"):
        x = breaking_helper(x)
    return x.cos()


def breaking_helper(x):
    with record_function("label helper"):
        x = x.sin()
        if x.sum() > 1000:
            x = x.neg()
        return x.exp()


@pytest.mark.parametrize("program", [breaks_inside, breaks_in_a_helper])
def test_what_runs_between_graphs_is_inside_of_the_labels(program):
    """Each label is opened and closed as often as the program does, or once more: in the graph, and around what follows."""
    captured, x = capture(program, "eager"), torch.rand(4)
    assert torch.equal(captured(x), program(x))
    wanted, found = seen(program, x), seen(captured, x)
    for name in {w for w in map(_name, wanted) if w.startswith("label")}:
        assert 1 <= list(map(_name, found)).count(name) <= 2
    assert [n for n in map(_name, found) if not n.startswith("label")] == [n for n in map(_name, wanted) if not n.startswith("label")]
    assert all(line.startswith(". ") for line in found if _name(line) in ("sin", "item", "neg"))


def _name(line: str) -> str:
    return line.rpartition(". ")[2]


def test_a_new_name_is_a_new_label():
    def named(x, name):
        with record_function(name):
            return x.sin()

    captured, x = capture(named, "eager", fullgraph=True), torch.rand(4)
    for name in ("label one", "label two", "label one"):
        captured(x, name)
        assert seen(captured, x, name) == [name, ". sin"]


def graph_of(program, *args):
    found = []

    def backend(gm, inputs):
        found.append(gm)
        return gm.forward

    capture(program, backend, fullgraph=True)(*args)
    return found[0]


def test_the_graph_has_labels_as_data():
    gm = graph_of(inside, torch.rand(4))
    assert gm.meta["labels"] == (("label a", -1), ("label b", 0), ("label c", -1), ("label d", 2))
    assert [node.meta.get("label", -1) for node in gm.graph.nodes if node.op.startswith("call_")] == [0, 1, 0, 3]
    assert not any("record_function" in str(node.target) for node in gm.graph.nodes)
    plain = graph_of(lambda x: x.sin(), torch.rand(4))
    assert "labels" not in plain.meta and labelled(plain) is plain


def ranges(x):
    torch.cuda.nvtx.range_push("label a")
    x = x.sin()
    with torch.cuda.nvtx.range("label b"):
        x = x.cos()
    torch.cuda.nvtx.range_pop()
    torch.cuda.nvtx.mark("label c")
    return x.exp()


class Stub:
    """What nvtx offers, noting its calls."""

    def __init__(self) -> None:
        self.calls = []

    def __getattr__(self, name):
        return lambda *args: self.calls.append((name, *args))


def test_ranges_of_nvtx_are_labels(monkeypatch):
    monkeypatch.setattr(torch.cuda.nvtx, "_nvtx", Stub())
    captured, x = capture(ranges, "eager", fullgraph=True), torch.rand(4)
    captured(x)
    assert seen(captured, x) == ["label a", ". sin", ". label b", ". . cos", "label c", "exp"]


def test_nvtx_that_is_not_there_raises_as_in_eager():
    if torch.version.cuda is None:
        with pytest.raises(RuntimeError, match="NVTX functions not installed"):
            capture(ranges, "eager")(torch.rand(4))


def test_ranges_that_are_open_at_a_break_are_opened_for_good(monkeypatch):
    stub = Stub()
    monkeypatch.setattr(torch.cuda.nvtx, "_nvtx", stub)

    def program(x):
        torch.cuda.nvtx.range_push("label")
        x = x.sin()
        if x.sum() > 1000:
            x = x.neg()
        x = x.cos()
        torch.cuda.nvtx.range_pop()
        return x

    captured, x = capture(program, "eager"), torch.rand(4)
    captured(x)
    stub.calls.clear()
    assert torch.equal(captured(x), x.sin().cos())
    assert [name for name, *_ in stub.calls] == ["rangePushA", "rangePop"]
