"""Graphs that are not compiled, each with its number; those who compile run them as they are then."""

import pytest
import torch

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes, index, sym_int
from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.capture.foreign import ForeignSizes
from opmill_graph_ir.errors import GraphError, KernelBuildError
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.optimizers.update import build_update
from opmill_graph_ir.recurrent import keeping
from opmill_runtime_cache.store import Store

X = torch.linspace(-2, 2, 4)


def graph_of(function, count):
    graph = torch.fx.Graph()
    inputs = tuple(graph.placeholder(f"x{k}") for k in range(count))
    graph.output((graph.call_function(function, inputs),))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def quantized(x):
    """Reads the numbers without the dispatcher."""
    return torch.choose_qparams_optimized(x, 4, 200, 0.16, 8)[0]


def padded(x, rows):
    return torch._VF._pad_packed_sequence(x, rows, False, 0.0, 2)[0]


REFUSED = {
    "another capture's fake": ("GI004", lambda x: x + FROM_ELSEWHERE, (X,)),
    "numbers that are read": ("GI008", quantized, (X,)),
    "lengths that are read": ("GI008", padded, (X.reshape(4, 1), torch.tensor([2, 2]))),
    "a size that does not fit": ("GI013", lambda x: x.reshape(3), (X,)),
    "an index that is not there": ("GI013", lambda x: x[7], (X,)),
    "sizes of a view that do not fit": ("GI013", lambda x: torch.as_strided_scatter(x, torch.ones(3), (2,), (1,)), (X,)),
}
with FakeContext():
    FROM_ELSEWHERE = torch.empty(4)


@pytest.mark.parametrize("case", REFUSED)
def test_a_graph_that_is_refused_says_why(case):
    code, function, inputs = REFUSED[case]
    with pytest.raises(GraphError, match=code):
        compile_graph(graph_of(function, len(inputs)), list(inputs))


def test_what_a_recurrent_layer_keeps_is_known_of_given_sizes_alone():
    sizes = Sizes()
    rows = sizes.new(3, name="rows")
    x = FakeContext(sizes).from_tensor(torch.randn(3, 2, 4), {0: rows})
    weights = [torch.randn(16, 4), torch.randn(16, 4), torch.randn(16), torch.randn(16)]
    state = torch.zeros(1, 2, 4)

    def layer(x, *weights):
        return torch.mkldnn_rnn_layer(x, *weights, state, state, False, [], 2, 4, 1, True, False, False, True)[0]

    with pytest.raises(GraphError, match="GI017"):
        compile_graph(graph_of(layer, 5), [x, *(w.requires_grad_() for w in weights)])
    assert keeping("aten::mkldnn_rnn_layer").name() == "opmill_keeping::mkldnn_rnn_layer"


def test_decisions_that_another_tracer_does_not_share():
    foreign = ForeignSizes()
    rows = foreign.sizes.new(3, name="rows")
    foreign.theirs["rows"] = 4
    assert sym_int(foreign.sizes, rows) == index(3).constant
    with pytest.raises(GraphError, match="GI010.*rows"):
        foreign.give_back()


def test_an_optimizer_without_a_kernel(tmp_path):
    entries = [{"param": torch.ones(3), "grad": torch.ones(3)}]
    with pytest.raises(KernelBuildError, match="GI050.*sgd"):
        build_update("sgd", frozenset(), entries, GeneratorOptions("cpu"), Store(tmp_path), ())
