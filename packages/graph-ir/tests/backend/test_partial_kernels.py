"""Where a generator does not take a kernel, or cannot build it, only the operators behind it are torch's own."""

import pytest
import torch

from opmill_graph_ir.backend import compile_graph, installed_generators
from opmill_graph_ir.errors import KernelBuildError
from opmill_graph_ir.loops.text import show
from opmill_runtime_cache.plan.model import Call, Launch
from opmill_runtime_cache.store import Store


class Picky:
    """The installed generator, without one primitive: refused at once, or when it is built."""

    name = "picky"

    def __init__(self, primitive: str, late: bool) -> None:
        self.inner, self.primitive, self.late = installed_generators()[0], primitive, late

    def available(self):
        return None

    def claims(self, kernel, options):
        return "no" if not self.late and self.primitive in show(kernel) else self.inner.claims(kernel, options)

    def build(self, kernels, options, store):
        if any(self.primitive in show(k) for k in kernels):
            raise KernelBuildError("XX001", "cannot")
        return self.inner.build(kernels, options, store)


def _f(x, y):
    a = torch.tanh(x) * y
    return torch.erf(a + 1).sum(-1), a, torch.softmax(y + a, -1)


@pytest.mark.skipif(not installed_generators(), reason="no kernel generator is installed")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("primitive", "whole"), [("erf(", False), ("no such thing", False), ("set", True)])
def test_only_what_cannot_be_built_is_called(primitive, whole, late, tmp_path, recwarn):
    inputs = [torch.randn(6, 40), torch.randn(6, 40)]
    with torch.no_grad():
        run = compile_graph(torch.fx.symbolic_trace(_f), inputs, store=Store(tmp_path), generators=[Picky(primitive, late)])
        for g, w in zip(run(*inputs), _f(*inputs), strict=True):
            torch.testing.assert_close(g, w)
    assert bool(run.report.operators_only) == whole
    assert (run.report.launches > 0) != whole
    if primitive == "erf(":
        assert run.report.calls == 1


@pytest.mark.skipif(not installed_generators(), reason="no kernel generator is installed")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("primitive", "whole"), [("erf(", False), ("exp(", False), ("no such thing", False), ("set", True)])
def test_forward_and_backward(primitive, whole, late, tmp_path, recwarn):
    """Their kernels are built together, and what one of them lacks the other need not do without."""
    picky = Picky(primitive, late)
    built, build = [], picky.build
    picky.build = lambda kernels, *rest: built.append(len(kernels)) or build(kernels, *rest)
    found = []
    given = [torch.randn(6, 40), torch.randn(6, 40)]
    run = compile_graph(torch.fx.symbolic_trace(_f), [t.clone().requires_grad_() for t in given], store=Store(tmp_path), generators=[picky])
    for call in (_f, run):
        inputs = [t.clone().requires_grad_() for t in given]
        outs = call(*inputs)
        sum(o.square().mean() for o in outs).backward()
        found.append([*outs, *(t.grad for t in inputs)])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want)
    assert bool(run.report.operators_only) == whole
    assert (run.report.launches > 0) != whole
    if primitive == "no such thing":
        assert len(built) == 1


@pytest.mark.skipif(not installed_generators(), reason="no kernel generator is installed")
@pytest.mark.parametrize("late", [False, True])
def test_of_two_equal_operators_of_one_line_only_the_one_that_cannot_be_built_is_called(late, tmp_path):
    """Which operators are left to torch is a matter of nodes, whatever is shown of where they come from."""

    def twice(x, y):
        return (x.exp(), y.exp())

    graph = torch.fx.symbolic_trace(twice)
    for node in graph.graph.nodes:
        node.stack_trace = '  File "model.py", line 3, in forward\n    return x.exp(), y.exp()\n'
    inputs = [torch.randn(6, 40), torch.randn(70, dtype=torch.float64)]
    with torch.no_grad():
        run = compile_graph(graph, inputs, store=Store(tmp_path), generators=[Picky("float64", late)])
        for g, w in zip(run(*inputs), twice(*inputs), strict=True):
            torch.testing.assert_close(g, w)
    assert (run.report.calls, run.report.launches) == (1, 1)
    [called] = [step for step in run.plan.steps if isinstance(step, Call)]
    [launched] = [step for step in run.plan.steps if isinstance(step, Launch)]
    assert called.origin == launched.origin != ""
