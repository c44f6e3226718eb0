"""Writes through views, aliasing of outputs, and refusals."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable

import pytest
import torch

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.options import GraphOptions


def module(fn: Callable[..., object], count: int) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    graph.output(graph.call_function(fn, tuple(graph.placeholder(f"a{k}") for k in range(count))))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def write_through_transpose(x, y):
    x.t()[1:].mul_(2)
    return (x + y,)


def write_seen_by_other_views(x, y):
    z = x.clone()
    a, b = z[0], z.view(-1)
    a.add_(y[0])
    return a, b * 1, z


def two_writes(x, y):
    x[0] = y[1]
    x.select(1, 2).fill_(7.0)
    y.copy_(x)
    return x.sum(), y


def in_place_transposition(x, y):
    z = x * 2
    z.t_()
    z[0].zero_()
    return z, z.t()


def out_argument(x, y):
    z = torch.empty_like(x)
    torch.add(x, y, out=z)
    return (z,)


@pytest.mark.parametrize("fn", [write_through_transpose, write_seen_by_other_views, two_writes, in_place_transposition, out_argument])
def test_writes_as_eager(fn: Callable[..., object]) -> None:
    torch.manual_seed(0)
    eager = [torch.randn(3, 4), torch.randn(3, 4)]
    ours = [t.clone() for t in eager]
    gm = module(fn, 2)
    with torch.no_grad():
        graph = functionalize(gm, ours)
        got = run_lowered(lower(graph), [*ours, *graph.held_tensors])
        expected = gm(*eager)
    for a, b in zip([*got, *ours], [*expected, *eager], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        assert a.stride() == b.stride()


WRITING: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "pow_ of a tensor": lambda x, y: x.pow_(y),
    "pow_ of a number": lambda x, y: x.pow_(3),
    "floor_divide_": lambda x, y: operator.ifloordiv(x, y),
    "floor_divide_ by a number": lambda x, y: operator.ifloordiv(x, 2),
    "shift to the left": lambda x, y: operator.ilshift(x, y),
    "shift to the right": lambda x, y: operator.irshift(x, 1),
    "or": lambda x, y: operator.ior(x, y),
    "polygamma_": lambda x, y: x.float().polygamma_(1),
    "sort into tensors": lambda x, y: torch.sort(-x, 1, out=(torch.empty_like(x), torch.empty_like(x)))[1],
    "max into tensors": lambda x, y: torch.max(-x, 0, out=(torch.empty_like(x[0]), torch.empty_like(x[0])))[1],
    "svd into tensors": lambda x, y: torch.linalg.svd(x.float(), out=(torch.empty(2, 2), torch.empty(2), torch.empty(3, 3)))[1],
    "rrelu_": lambda x, y: torch.nn.functional.rrelu(-x.float(), 0.3, 0.3, training=True, inplace=True),
    "rrelu": lambda x, y: torch.nn.functional.rrelu(-x.float(), 0.3, 0.3, training=True),
}


@pytest.mark.parametrize("name", WRITING)
def test_operators_whose_functional_form_is_called_otherwise(name: str) -> None:
    """In place and not, overloads have other names, other orders of arguments, or write more than they return."""
    gm = module(lambda x, y: (WRITING[name](x * 1, y),), 2)
    inputs = [torch.arange(1, 7).view(2, 3), torch.tensor([1, 2, 3])]
    with torch.no_grad():
        graph = functionalize(gm, inputs)
        [got] = run_lowered(lower(graph), inputs)
        [want] = gm(*inputs)
    torch.testing.assert_close(got, want)


def reals() -> torch.Tensor:
    return torch.arange(1.0, 9.0).reshape(4, 2)


def complexes() -> torch.Tensor:
    return torch.complex(reals(), -2 * reals())


THROUGH_VIEWS: dict[str, tuple[Callable[[], torch.Tensor], Callable[[torch.Tensor], object]]] = {
    "view_as_real": (complexes, lambda y: torch.view_as_real(y)[..., 0].mul_(3)),
    "real": (complexes, lambda y: y.t().real[1].add_(1)),
    "imag": (complexes, lambda y: y.imag.copy_(y.real)),
    "conj": (complexes, lambda y: y.conj().mul_(2j)),
    "imag of conj": (complexes, lambda y: y.conj().imag.mul_(2).add_(1)),
    "view_as_complex": (reals, lambda y: torch.view_as_complex(y).mul_(1j)),
    "as int32": (reals, lambda y: y.t().view(torch.int32)[1:].bitwise_and_(0x7FFF0000)),
    "as int64": (reals, lambda y: y.view(torch.int64)[1].fill_(0)),
    "as uint8": (reals, lambda y: y.view(torch.uint8)[:, 3].bitwise_and_(0x7F)),
    "unfold": (reals, lambda y: y.unfold(0, 2, 2)[1].mul_(2)),
    "unfold with gaps": (reals, lambda y: y.t().unfold(-1, 1, 3).mul_(2)),
    **{
        f"unfold {size} {step} of imaginary parts": (complexes, lambda y, size=size, step=step: y.imag.unfold(0, size, step)[0].mul_(7))
        for size, step in ((1, 1), (2, 2), (3, 3), (2, 4), (1, 9), (2, 3), (4, 4))
    },
    "unfold of every second": (reals, lambda y: y[::2].t().unfold(1, 2, 3).add_(7)),
    "unfold of a row": (complexes, lambda y: y.real[None].unfold(0, 1, 3).add_(7)),
    "expand": (reals, lambda y: y[:1].expand(1, -1, 2)[0].mul_(2)),
}


@pytest.mark.parametrize("kind", ["input", "inside"])
@pytest.mark.parametrize("name", THROUGH_VIEWS)
def test_writes_through_views(name: str, kind: str) -> None:
    make, write = THROUGH_VIEWS[name]

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x if kind == "input" else x.clone()
        write(y)
        return (y * 1, y) if kind == "inside" else (y * 1,)

    theirs, ours, gm = make(), make(), module(fn, 1)
    with torch.no_grad():
        want, graph = gm(theirs), functionalize(gm, [ours])
        got = run_lowered(lower(graph), [ours, *graph.held_tensors])
    for a, b in zip([*got, ours], [*want, theirs], strict=True):
        assert torch.equal(a, b) and a.stride() == b.stride()


@pytest.mark.parametrize("write", [lambda y: y.unfold(0, 2, 1)[1].mul_(2), lambda y: y[:1].expand(3, 2)[0].mul_(2)])
def test_writes_to_elements_that_are_seen_twice_are_refused(write: Callable[[torch.Tensor], object]) -> None:
    with torch.no_grad(), pytest.raises(GraphError, match="GI003"):
        functionalize(module(lambda y: (write(y),), 1), [reals()])


def test_output_that_is_a_view_of_an_input() -> None:
    x = torch.randn(3, 4)
    with torch.no_grad():
        graph = functionalize(module(lambda a: (a.t()[1:],), 1), [x])
    [view] = run_lowered(lower(graph), [x])
    assert view.data_ptr() == x[:, 1:].data_ptr() and view.stride() == (1, 4)


@pytest.mark.parametrize("fn", [lambda a: (a.t_() * 2,), lambda a: (a.unsqueeze_(0).sum(),), lambda a: (a.transpose_(0, 1),)])
def test_an_input_that_becomes_another_is_refused(fn: Callable[..., object]) -> None:
    with torch.no_grad(), pytest.raises(GraphError, match="GI002"):
        functionalize(module(fn, 1), [torch.randn(3, 4)])
    with torch.no_grad():
        functionalize(module(lambda a: fn(a.view(4, 3)), 1), [torch.randn(3, 4)])


def test_gradients_are_refused() -> None:
    with pytest.raises(GraphError, match="GI001"):
        functionalize(module(lambda a: (a * 2,), 1), [torch.randn(3, requires_grad=True)])


@pytest.mark.parametrize(
    "share", [lambda x: (x, x[:], x), lambda x: (x[1], x, x), lambda x: (x[:, 1], x[:, 0], x), lambda x: (x[0].view(torch.int32), x, x)]
)
def test_written_inputs_that_share_memory_are_refused(share: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]) -> None:
    for order in ((0, 1), (1, 0)):
        given = share(torch.randn(4, 4))
        with torch.no_grad(), pytest.raises(GraphError, match="GI005"):
            functionalize(module(lambda a, b, k=order[0]: ((a, b)[k].zero_(),), 2), [given[k] for k in order])


def test_written_inputs_beside_others_of_one_memory() -> None:
    """Parameters of a flat buffer: what is written lies apart, what is read may overlap."""

    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a.add_(b[0])
        return (c * d.sum(), a + b)

    theirs, ours = torch.arange(16.0), torch.arange(16.0)
    parts = lambda x: [x[:4], x[4:8], x[4:10], x[8:12]]
    with torch.no_grad():
        want, graph = fn(*parts(theirs)), functionalize(module(fn, 4), parts(ours))
        got = run_lowered(lower(graph), parts(ours))
        assert all(map(torch.equal, (*got, ours), (*want, theirs)))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="GI030")
            run = compile_graph(module(fn, 4), parts(ours), options=GraphOptions(verify=True, cache=False))
        assert all(map(torch.equal, (*run(*parts(ours)), ours), (*fn(*parts(theirs)), theirs)))


def test_written_inputs_that_overlap_themselves_are_refused() -> None:
    x = torch.zeros(1).expand(3)
    with torch.no_grad(), pytest.raises(GraphError, match="GI005"):
        functionalize(module(lambda a: (a[:1].add_(1),), 1), [x])


def test_a_result_that_resizes_what_it_is_written_to_is_refused() -> None:
    with torch.no_grad(), pytest.raises(GraphError, match="GI002.*add.out resizes"):
        functionalize(module(lambda a: (torch.add(a, 1, out=torch.empty(0)),), 1), [torch.ones(3)])


def test_lists_among_other_results_are_refused() -> None:
    @torch.library.custom_op("opmill_tests::parts_and_count", mutates_args=())
    def parts(x: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        return [x.clone(), x + 1], x * 2

    parts.register_fake(lambda x: ([x.clone(), x.clone()], x.clone()))
    with torch.no_grad(), pytest.raises(GraphError, match="GI002.*parts_and_count"):
        functionalize(module(lambda a: (parts(a)[1],), 1), [torch.ones(3)])


def test_a_tensor_from_outside_is_held_not_copied() -> None:
    scale = torch.tensor(2.0)
    x = torch.ones(3)
    with torch.no_grad():
        graph = functionalize(module(lambda a: (a * scale,), 1), [x])
    scale.fill_(5.0)
    [out] = run_lowered(lower(graph), [x, *graph.held_tensors])
    assert out.tolist() == [5.0] * 3


def test_held_tensors_whose_names_are_written_alike_are_two() -> None:
    gm = module(lambda x: x, 1)
    gm.a, gm.a_weight = torch.nn.Linear(3, 3, bias=False), torch.nn.Parameter(torch.ones(3, 3))
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.add, (graph.get_attr("a.weight"), graph.get_attr("a_weight"))))
    gm.graph = graph
    with torch.no_grad():
        found = functionalize(gm, [])
    assert len(set(found.held)) == 2
    assert all(a is b for a, b in zip(found.held_tensors, (gm.a.weight, gm.a_weight), strict=True))


def test_a_view_of_another_type_of_what_nobody_else_sees() -> None:
    x = torch.randn(3, 4)

    def parts(a):
        z = torch.complex(a, -a)
        return z.imag.t(), (z * 2).conj(), a + 1

    with torch.no_grad():
        graph = functionalize(module(parts, 1), [x])
    for got, want in zip(run_lowered(lower(graph), [x]), parts(x), strict=True):
        assert torch.equal(got, want) and got.stride() == want.stride()


TYPED: list[Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = [
    lambda a: (torch.view_as_real(a),),
    lambda a: (lambda z: (z.real, z.imag, z))(a * 2),
    lambda a: (lambda z: (z[1:].imag, z.view(torch.float64), z.real.t()[:1]))(a * 2),
    lambda a: (torch.view_as_complex(torch.stack([a.real, a.imag * 2], -1)).unsqueeze(0).expand(3, -1, -1),),
    lambda a: (a[1:].t().imag[1:], a.mul_(2).view(torch.float64), a.real.view(torch.int32)),
]


@pytest.mark.parametrize("kind", ["interpreted", "plan"])
@pytest.mark.parametrize("fn", TYPED)
def test_views_of_another_type_share_memory(fn: Callable[[torch.Tensor], tuple[torch.Tensor, ...]], kind: str) -> None:
    theirs, ours = (torch.zeros(7, dtype=torch.complex64)[1:].copy_(complexes().flatten()[:6]).reshape(3, 2) for _ in range(2))
    gm = module(fn, 1)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GI030")
        want = gm(theirs)
        if kind == "plan":
            got = compile_graph(gm, [ours], options=GraphOptions(verify=True, cache=False))(ours)
        else:
            got = run_lowered(lower(functionalize(gm, [ours])), [ours])
    for a, b in zip([*got, ours], [*want, theirs], strict=True):
        assert torch.equal(a, b) and (a.dtype, a.stride(), a.storage_offset()) == (b.dtype, b.stride(), b.storage_offset())
        assert [a.untyped_storage().data_ptr() == o.untyped_storage().data_ptr() for o in (*got, ours)] == [
            b.untyped_storage().data_ptr() == o.untyped_storage().data_ptr() for o in (*want, theirs)
        ]


def test_marked_views_that_share_memory_are_refused() -> None:
    for fn in (lambda a: (a.conj(),), lambda a: (a.conj().imag,), lambda a: (lambda z: (z, z.conj()))(a * 2)):
        with torch.no_grad(), pytest.raises(GraphError, match="GI003"):
            functionalize(module(fn, 1), [torch.ones(3, dtype=torch.complex64)])


@pytest.mark.parametrize(
    "draw",
    [
        lambda t: t.normal_(), lambda t: t.normal_(2.0), lambda t: t.normal_(std=3.0), lambda t: t.bernoulli_(), lambda t: t.bernoulli_(0.9),
        lambda t: t.bernoulli_(p=0.1), lambda t: t.uniform_(), lambda t: t.exponential_(), lambda t: t.random_(), lambda t: t.cauchy_(),
        lambda t: t.geometric_(0.4), lambda t: t.log_normal_(), lambda t: t.random_(9), lambda t: t.uniform_(1.0, 2.0),
    ],
)  # fmt: skip
def test_numbers_drawn_in_place_are_those_of_eager(draw: Callable[..., object]) -> None:
    gm = module(lambda x: (draw(x * 1),), 1)
    lowered = lower(functionalize(gm, [torch.ones(64)]))
    torch.manual_seed(0)
    [want] = gm(torch.ones(64))
    torch.manual_seed(0)
    [got] = run_lowered(lowered, [torch.ones(64)])
    assert torch.equal(want, got)


def test_normal_numbers_written_in_place_are_drawn_by_a_functional_operator():
    class Noise(torch.nn.Module):
        def forward(self, x):
            return (torch.empty_like(x).normal_(2.0, 3.0) + x,)

    with torch.no_grad():
        graph = functionalize(torch.fx.symbolic_trace(Noise()), [torch.zeros(4)])
    assert [n.func for n in graph.nodes if n.func.name().startswith("aten::normal")] == [torch.ops.aten.normal_functional.default]


def test_recurrent_layers_of_onednn_keep_what_their_backward_needs():
    from opmill_graph_ir.capture.graph import values_in
    from opmill_graph_ir.capture.joint import capture_joint

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.LSTM(3, 4)

        def forward(self, x):
            return self.rnn(x)[0]

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, torch.nn.LSTM)

    layer = Layer()
    gm = torch.fx.GraphModule(layer, Tracer().trace(layer))
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch has no oneDNN here")
    nodes = capture_joint(gm, [torch.randn(5, 2, 3)]).graph.nodes
    [forward] = [n for n in nodes if n.func.name() == "opmill_keeping::mkldnn_rnn_layer"]
    [backward] = [n for n in nodes if n.func.name() == "aten::mkldnn_rnn_layer_backward"]
    assert forward.results[3] in [v.name for v in values_in(backward.args)]


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_whose_schema_says_that_it_writes(training: bool) -> None:
    x = torch.randn(5, 3)

    def norm(x, w, mean, var):
        return torch._native_batch_norm_legit(x, w, None, mean, var, training, 0.1, 1e-5)[:1]

    ours, theirs = ([x, torch.rand(3), torch.zeros(3), torch.ones(3)] for _ in range(2))
    theirs[1] = ours[1]
    with torch.no_grad():
        graph = functionalize(module(norm, 4), [t.clone() for t in ours])
        got, want = run_lowered(lower(graph), ours), norm(*theirs)
    for g, w in zip((*got, *ours), (*want, *theirs), strict=True):
        torch.testing.assert_close(g, w)
