"""The module that a backend is given has its text when it is asked for it, and is a GraphModule like any other."""

import copy
import pickle

import torch

from opmill_bytecode_frontend import capture


def graph_of(function, *args):
    found = []

    def backend(gm, example_inputs):
        assert "_code" not in gm.__dict__
        found.append(gm)
        return lambda *inputs: gm.forward(*inputs)

    assert torch.equal(capture(function, backend, fullgraph=True)(*args), function(*args))
    return found[0]


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 3))

    def forward(self, x):
        return torch.relu(x @ self.weight)


LAYER, X = Layer(), torch.randn(2, 3)
W = LAYER.weight
"""Tensors of modules are inputs of graphs, behind the others."""


def apply(x):
    return LAYER(x)


def fresh():
    found = []
    capture(apply, lambda gm, inputs: found.append(gm) or (lambda x, weight: (apply(x),)), fullgraph=True)(X)
    assert "_code" not in found[0].__dict__
    return found[0]


def test_a_backend_may_run_it():
    assert "relu" in graph_of(apply, X).code


def test_whatever_asks_for_the_text_gets_it():
    want = LAYER(X)
    for ask in (
        lambda gm: gm(X, W),
        lambda gm: gm.forward(X, W),
        lambda gm: copy.deepcopy(gm)(X, W),
        lambda gm: copy.copy(gm)(X, W),
        lambda gm: torch.fx.GraphModule(gm, gm.graph)(X, W),
        lambda gm: pickle.loads(pickle.dumps(gm))(X, W),
        lambda gm: torch.fx.Interpreter(gm).run(X, W),
        lambda gm: (str(gm), gm(X, W))[1],
        lambda gm: torch.fx.symbolic_trace(gm)(X, W),
    ):
        assert torch.equal(ask(fresh())[0], want)
    assert "def forward(self, x, p_" in fresh().code
    assert "def forward(self, x, p_" in str(fresh())
    assert "def forward(self, x, p_" in fresh().recompile().src
    assert not hasattr(fresh(), "nothing")


def test_changes_of_the_graph_are_compiled():
    gm = fresh()
    node = next(n for n in gm.graph.nodes if n.target is torch.relu)
    node.target = torch.tanh
    gm.recompile()
    assert torch.equal(gm(X, W)[0], torch.tanh(X @ LAYER.weight))
    node.target = torch.relu
    gm.graph = gm.graph
    assert torch.equal(gm(X, W)[0], LAYER(X))


def test_each_has_a_forward_of_its_own():
    first, second = fresh(), graph_of(lambda x: torch.cos(x), X)
    assert torch.equal(second(X)[0], torch.cos(X))
    assert torch.equal(first(X, W)[0], LAYER(X))


def test_a_graph_with_an_argument_that_has_no_text_runs() -> None:
    """A generator of random numbers has none: such graphs were internal errors, and ran in eager."""
    drawn = torch.Generator()

    def fn(x):
        return torch.bernoulli(x, generator=drawn) + x, torch.randn(2, generator=drawn)

    def outcome(f):
        drawn.manual_seed(3)
        return [t.tolist() for t in f(torch.full((3,), 0.5))]

    compiled = capture(fn, "eager", fullgraph=True)
    for _ in range(2):
        assert outcome(compiled) == outcome(fn)
