"""Products of unaligned sizes computed in larger matrices: the same values, laid out as the caller expects, and only where it pays."""

from dataclasses import replace

import pytest
import torch

from opmill_graph_ir.capture import padding
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.padding import pad_products
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.evaluate import run_lowered
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.schedule.steps import ExternStep, schedule

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)


def padded(graph):
    """The graph, rewritten as if it ran on a GPU."""
    metas = {name: meta.device for name, meta in graph.metas.items()}
    graph.metas = {name: replace(meta, device="cuda:0") for name, meta in graph.metas.items()}
    pad_products(graph)
    graph.metas = {name: replace(meta, device=metas.get(name, "cpu")) for name, meta in graph.metas.items()}
    return graph


def traced(fn, inputs):
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        return padded(functionalize(make_fx(fn)(*inputs), list(inputs)))


def sizes_of_products(graph):
    return [
        (graph.metas[a.name].sizes[-1], graph.metas[n.results[0]].sizes[-1])
        for n in graph.nodes
        if n.func in PRODUCTS
        for a in n.args[-2:-1]
    ]


def half(*sizes):
    return torch.randn(sizes).bfloat16()


def check(fn, *inputs):
    graph = traced(fn, inputs)
    found, wanted = run_lowered(lower(graph), inputs), fn(*inputs)
    exact = fn(*(x.double() for x in inputs))
    for a, b, e in zip(found, wanted, exact, strict=True):
        assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
        assert (a.double() - e).norm() <= 1.5 * (b.double() - e).norm() + 1e-6 * e.norm()
    return graph


CASES = {
    "columns": (lambda x, w: (torch.mm(x.sin(), w.t().cos()),), (32, 16), (27, 16)),
    "depth": (lambda x, w: (torch.mm(x.sin(), w.cos()),), (32, 27), (27, 16)),
    "rows": (lambda x, w: (torch.mm(x.sin().t(), w.cos()),), (32, 27), (32, 16)),
    "all": (lambda x, w: (torch.mm(x.sin().t(), w.cos().t()),), (13, 27), (11, 13)),
    "addend": (lambda b, x, w: (torch.addmm(b, x.sin(), w.cos()),), (27,), (32, 16), (16, 27)),
    "scaled": (lambda b, x, w: (torch.addmm(b, x.sin().t(), w.cos(), beta=0.5, alpha=2),), (27, 11), (16, 27), (16, 11)),
    "spread": (lambda b, x, w: (torch.addmm(b, x.sin(), w.cos()),), (32, 1), (32, 16), (16, 27)),
    "batch": (lambda x, w: (torch.bmm(x.sin(), w.cos()),), (4, 6, 9), (4, 9, 13)),
    "batch addend": (lambda b, x, w: (torch.baddbmm(b, x.sin(), w.cos()),), (4, 1, 13), (4, 6, 9), (4, 9, 13)),
}


@pytest.fixture
def eager_to_pad(monkeypatch):
    """Products of any size are worth it."""
    monkeypatch.setattr(padding, "_SLOW", 1.0)


@pytest.mark.usefixtures("eager_to_pad")
@pytest.mark.parametrize("name", CASES)
def test_the_values_and_layout_are_those_of_the_product(name: str) -> None:
    fn, *sizes = CASES[name]
    graph = check(fn, *(half(*s) for s in sizes))
    assert all(k % 8 == n % 8 == 0 for k, n in sizes_of_products(graph))


@pytest.mark.usefixtures("eager_to_pad")
def test_results_are_read_as_views() -> None:
    """As a loss does it: what leaves is contiguous, what is computed on goes by rows of the larger matrix."""

    def loss(x, w):
        logits = aten._unsafe_view(torch.mm(x.sin(), w.t().cos()), [2, 4, 27])
        return logits, logits.float().view(-1, 27).logsumexp(1), logits

    graph = check(loss, half(8, 16), half(27, 16))
    assert len({o.value for o in graph.outputs}) == 2, "what leaves twice is one tensor"
    reduced = next(k for k in schedule(lower(graph)).kernels() if any(p.reductions for n in k.nests for p in n.phases))
    assert reduced.buffers[0].numel.constant == 8 * 32, "rows of the larger matrix are what the sum reads"


@pytest.mark.usefixtures("eager_to_pad")
def test_two_products_share_a_padded_operand() -> None:
    def both(d, h, w):
        d = d.sin()
        return torch.mm(d, w.cos()), torch.mm(d.t(), h.cos())

    graph = check(both, half(32, 27), half(32, 16), half(27, 16))
    pads = [n for n in graph.nodes if n.func is aten.constant_pad_nd.default]
    assert len(pads) == 2, "the gradient once, the weight once"
    program = schedule(lower(graph))
    copied = [s for s in program.steps if not isinstance(s, ExternStep)]
    assert len(copied) == 3, "both pads are made by what computes their values, the part that leaves is copied"


@pytest.mark.parametrize(
    "x, w",
    [((1, 512), (1003, 512)), ((16, 512), (1003, 512)), ((1024, 512), (1008, 512)), ((1003, 512), (512, 512))],
    ids=["one row", "few rows", "aligned", "rows that run along nothing"],
)
def test_what_gains_nothing_stays(x, w) -> None:
    graph = traced(lambda x, w: (torch.mm(x, w.t()),), (half(*x), half(*w)))
    assert not any(n.func is aten.constant_pad_nd.default for n in graph.nodes)


def test_an_operand_in_memory_is_copied_only_for_a_large_product() -> None:
    small = traced(lambda x, w: (torch.mm(x, w.t()),), (half(64, 512), half(4003, 512)))
    large = traced(lambda x, w: (torch.mm(x, w.t()),), (half(2048, 512), half(4003, 512)))
    assert [any(n.func is aten.constant_pad_nd.default for n in g.nodes) for g in (small, large)] == [False, True]


def test_other_types_and_devices_stay() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    for dtype, rewrite in ((torch.float32, padded), (torch.bfloat16, lambda g: pad_products(g) or g)):
        inputs = [torch.randn(1024, 512).to(dtype), torch.randn(1003, 512).to(dtype)]
        graph = rewrite(functionalize(make_fx(lambda x, w: (torch.mm(x, w.t()),))(*inputs), inputs))
        assert not any(n.func is aten.constant_pad_nd.default for n in graph.nodes)


@pytest.mark.usefixtures("eager_to_pad")
def test_gradients_of_a_large_vocabulary() -> None:
    h, w = half(32, 16).requires_grad_(), half(203, 16).requires_grad_()
    labels = torch.randint(0, 203, (32,))

    class Head(torch.nn.Module):
        def forward(self, h, w, labels):
            logits = torch.nn.functional.linear(h.sin(), w)
            return torch.nn.functional.cross_entropy(logits.float(), labels), logits

    gm = torch.fx.symbolic_trace(Head())
    joint = capture_joint(gm, [h, w, labels])
    padded(joint.graph)
    halves = partition(joint)
    products = [s for g in halves.graphs for s in sizes_of_products(g)]
    assert len(products) == 3 and all(k % 8 == n % 8 == 0 for k, n in products)
    with torch.no_grad():
        loss, logits, *saved = run_lowered(lower(halves.forward), [h, w, labels])
    want = Head()(h, w, labels)
    assert logits.stride() == want[1].stride() and torch.equal(logits, want[1])
    torch.testing.assert_close(loss, want[0].detach())
    names = [o.value for o in halves.forward.outputs]
    known = {**dict(zip(joint.graph.inputs, [h, w, labels], strict=False)), **dict(zip(names, [loss, logits, *saved], strict=True))}
    tangents = dict(zip(halves.backward.inputs[:2], [torch.ones(()), torch.zeros_like(logits)], strict=True))
    found = run_lowered(lower(halves.backward), [{**known, **tangents}[name].detach() for name in halves.backward.inputs])
    want[0].backward()
    got = dict(zip(joint.targets, found, strict=True))
    for name, tensor in zip(joint.graph.inputs, (h, w), strict=False):
        assert got[name].stride() == tensor.grad.stride()
        torch.testing.assert_close(got[name], tensor.grad, rtol=2e-2, atol=1e-4)
