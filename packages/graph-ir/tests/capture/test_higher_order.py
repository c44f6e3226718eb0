"""Higher-order operators: compiled graphs against Python's own branches and loops, with numbers and symbols for sizes, with and without
gradients."""

import operator
import warnings

import pytest
import torch
import torch._higher_order_ops.map  # registers it
from torch._higher_order_ops import associative_scan, cond, scan, while_loop  # noqa: F401 -- registers them

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes
from opmill_graph_ir.backend import compile_graph, installed_generators
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.options import GraphOptions
from opmill_runtime_cache.plan.text import parse, render
from opmill_runtime_cache.store import Store

HIGHER = torch.ops.higher_order
GENERATORS = (*(["kernels"] if installed_generators() else []), "operators")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(params=GENERATORS)
def generators(request):
    return installed_generators() if request.param == "kernels" else ()


def graph_of(op, count, arguments, bodies, results, held=None):
    """A module with ``count`` inputs that calls ``op``: ``arguments`` gets its inputs and bodies, and lists what the operator is given."""
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"x{k}") for k in range(count)]
    modules = {f"body{k}": b if isinstance(b, torch.fx.GraphModule) else torch.fx.symbolic_trace(b) for k, b in enumerate(bodies)}
    called = graph.call_function(op, tuple(arguments(inputs, [graph.get_attr(name) for name in modules])))
    graph.output(tuple(graph.call_function(operator.getitem, (called, k)) for k in range(results)))
    return torch.fx.GraphModule(modules, graph)


def then(x, y):
    return x.sin() * y, (x + y).sum(0)


def other(x, y):
    return (x.t() @ x) * 0.1 + y.transpose(0, 1).t(), x.cos().amax(0)


def branch(p, x, y):
    return then(x, y) if p else other(x, y)


def goes_on(i, x, w):
    return i < 4


def step(i, x, w):
    return i + 1, torch.relu(x @ w) + x.t().t()


def looped(i, x, w):
    while goes_on(i, x, w):
        i, x = step(i, x, w)
    return i, x


def combine(c, x, y, w):
    new = torch.tanh(c * w + x)
    return new, new * y + w.sum(), x


def scanned(c, x, y, w):
    rows, others = [], []
    for k in range(x.shape[0]):
        c, a, b = combine(c, x[k], y[k], w)
        rows.append(a)
        others.append(b)
    return c, torch.stack(rows), torch.stack(others)


def row(x, w):
    return (x * w).softmax(-1), w.exp()


def mapped(x, w):
    return tuple(map(torch.stack, zip(*(row(r, w) for r in x))))


class Holding(torch.nn.Module):
    """A side that holds a tensor of its own."""

    def __init__(self, sign):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 5) * sign)

    def forward(self, x, y):
        return x * self.weight + y, (x - self.weight).sum(0)


SIDES = Holding(1), Holding(-2)
CASES = {
    "cond": (
        graph_of(HIGHER.cond, 3, lambda i, b: [i[0], *b, (i[1], i[2])], [then, other], 2),
        branch, lambda flag: [torch.tensor(flag), torch.randn(5, 5), torch.randn(5, 5)], True,
    ),
    "cond that holds tensors": (
        graph_of(HIGHER.cond, 3, lambda i, b: [i[0], *b, (i[1], i[2])], SIDES, 2),
        lambda p, x, y: SIDES[0](x, y) if p else SIDES[1](x, y), lambda flag: [torch.tensor(flag), torch.randn(3, 5), torch.randn(3, 5)], True,
    ),
    "while": (
        graph_of(HIGHER.while_loop, 3, lambda i, b: [*b, (i[0], i[1]), (i[2],)], [goes_on, step], 2),
        looped, lambda flag: [torch.tensor(1 if flag else 9), torch.randn(4, 4).t(), torch.randn(4, 4) * 0.5], True,
    ),
    "scan": (
        graph_of(HIGHER.scan, 4, lambda i, b: [b[0], (i[0],), (i[1], i[2]), (i[3],)], [combine], 3),
        scanned, lambda flag: [torch.randn(3), torch.randn(6, 3), torch.randn(3, 6).t(), torch.randn(3)], True,
    ),
    "map": (
        graph_of(HIGHER.map_impl, 2, lambda i, b: [b[0], (i[0],), (i[1],)], [row], 2),
        mapped, lambda flag: [torch.randn(4, 3), torch.randn(3)], True,
    ),
}  # fmt: skip


def inputs_of(name, flag, grad):
    torch.manual_seed(flag)
    _, _, make, differentiable = CASES[name]
    inputs = make(flag)
    return [x.requires_grad_() if grad and differentiable and x.is_floating_point() else x for x in inputs]


def compiled(gm, examples, store, generators, grad):
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GI030")
        return compile_graph(gm, examples, options=GraphOptions(verify=True), store=store, generators=generators)


def run(function, inputs, grad, parameters=()):
    with torch.set_grad_enabled(grad):
        outputs = function(*inputs)
        wanted = [x for x in (*inputs, *parameters) if x.requires_grad]
        total = sum((o * torch.arange(o.numel()).reshape(o.shape)).sum() for o in outputs if o.requires_grad)
        found = torch.autograd.grad(total, wanted, allow_unused=True) if grad and wanted else []
    return [*outputs, *(torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=bool(found)))]


def same(got, want):
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", CASES)
def test_as_python_has_it(name, grad, store, generators):
    gm, plain, _, differentiable = CASES[name]
    if grad and not differentiable:
        pytest.skip("it has no gradient")
    function = compiled(gm, inputs_of(name, True, grad), store, generators, grad)
    for flag in (True, False, True):
        parameters = [p for p in gm.parameters() if grad]
        same(run(function, inputs_of(name, flag, grad), grad, parameters), run(plain, inputs_of(name, flag, grad), grad, parameters))


@pytest.mark.parametrize("name", CASES)
def test_a_stored_plan_does_the_same(name, store):
    gm, plain, _, _ = CASES[name]
    compiled(gm, inputs_of(name, True, False), store, installed_generators(), False)
    again = compiled(gm, inputs_of(name, True, False), store, installed_generators(), False)
    assert again.report.cached == (name != "cond that holds tensors") and again.plan.bodies
    assert parse(render(again.plan)) == again.plan
    same(run(again, inputs_of(name, False, False), False), run(plain, inputs_of(name, False, False), False))


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", ["cond", "while", "scan", "map"])
def test_symbolic_sizes_stay_symbols(name, grad, store):
    gm, plain, _, _ = CASES[name]
    shapes = {"cond": [None, "nn", "nn"], "while": [None, "nn", "nn"], "scan": ["m", "nm", "nm", "m"], "map": ["nm", "m"]}[name]

    def inputs(n, m):
        torch.manual_seed(n)
        tensors = [
            torch.tensor(n > 4 if name == "cond" else n) if s is None else torch.randn([{"n": n, "m": m}[d] for d in s]) for s in shapes
        ]
        return [t.requires_grad_() if grad and t.is_floating_point() else t for t in tensors]

    sizes = Sizes()
    symbols = {"n": sizes.new(4, name="s0"), "m": sizes.new(3, name="s1")}
    context = FakeContext(sizes)
    examples = [
        context.from_tensor(t, {d: symbols[c] for d, c in enumerate(s)}) if s else t for t, s in zip(inputs(4, 3), shapes, strict=True)
    ]
    function = compiled(gm, examples, store, installed_generators(), grad)
    assert [d for d in sizes.decisions if d.relation.kind == "=="] == []
    for n, m in ((4, 3), (7, 2), (2, 9)):
        same(run(function, inputs(n, m), grad), run(plain, inputs(n, m), grad))


def test_random_numbers_in_a_body_are_drawn(store):
    class Noise(torch.nn.Module):
        def forward(self, x):
            return (x + torch.rand_like(x),)

    gm = graph_of(HIGHER.cond, 2, lambda i, b: [i[0], *b, (i[1],)], [Noise(), Noise()], 1)
    function = compiled(gm, [torch.tensor(True), torch.zeros(64)], store, installed_generators(), False)
    first, second = function(torch.tensor(True), torch.zeros(64))[0], function(torch.tensor(False), torch.zeros(64))[0]
    assert not torch.equal(first, second) and first.min() >= 0 and first.max() < 1


def test_nested(store, generators):
    def inner(x):
        return (x * 2 + 1,)

    def outer(p, x):
        return (torch.stack([inner(r)[0] if p else r.exp() for r in x]),)

    nested = graph_of(HIGHER.cond, 2, lambda i, b: [i[1], *b, (i[0],)], [inner, lambda x: (x.exp(),)], 1)
    gm = graph_of(HIGHER.map_impl, 2, lambda i, b: [b[0], (i[1],), (i[0],)], [nested], 1)
    for flag in (True, False):
        x = torch.randn(3, 4)
        same(compiled(gm, [torch.tensor(flag), x], store, generators, False)(torch.tensor(flag), x), outer(flag, x))


REFUSED = {
    "GI014": graph_of(HIGHER.cond, 2, lambda i, b: [i[0], *b, (i[1],)], [lambda x: (x,), lambda x: (x.sum(),)], 1),
    "GI015": graph_of(HIGHER.cond, 2, lambda i, b: [i[0], *b, (i[1],)], [lambda x: (x.add_(1),), lambda x: (x + 1,)], 1),
}


@pytest.mark.parametrize("code", REFUSED)
def test_refusals(code, store):
    with pytest.raises(GraphError, match=code):
        compiled(REFUSED[code], [torch.tensor(True), torch.ones(3)], store, (), False)
