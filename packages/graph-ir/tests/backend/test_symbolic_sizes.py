"""Graphs compiled for symbolic sizes: right at every size that what was assumed allows, and little is assumed."""

import itertools
import warnings
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from opmill_fake_tensors import FakeContext
from opmill_fake_tensors.symbols import Sizes, index, sym_int
from opmill_graph_ir.backend import compile_graph, installed_generators
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.options import GraphOptions
from opmill_runtime_cache.store import Store

F = torch.nn.functional
SIZES = (2, 3, 5, 8, 17, 33)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class Captured:
    """Inputs to compile with, described by shapes that name symbols (a bare name: the size itself is an input)."""

    def __init__(self, shapes, hints):
        self.shapes, self.hints, self.sizes = shapes, hints, Sizes()
        self.symbols = {name: self.sizes.new(hint, name=f"n_{name}") for name, hint in hints.items()}
        self.context = FakeContext(self.sizes)
        self.examples = [self.example(shape) for shape in shapes]

    def example(self, shape):
        if isinstance(shape, str):
            return sym_int(self.sizes, self.symbols[shape])
        moving = {d: self.symbols[n] for d, n in enumerate(shape) if isinstance(n, str)}
        real = self.tensor(shape, self.hints)
        return self.context.from_tensor(real, moving) if moving else real

    @staticmethod
    def tensor(shape, values):
        return torch.randn([values[n] if isinstance(n, str) else n for n in shape])

    def holds(self, values):
        return self.sizes.holds({f"n_{name}": value for name, value in values.items()})

    def inputs(self, values):
        return [values[s] if isinstance(s, str) else self.tensor(s, values) for s in self.shapes]


def compiled(function, captured, store, generators, **options):
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GI030")
        return compile_graph(
            torch.fx.symbolic_trace(function),
            captured.examples,
            options=GraphOptions(verify=True, **options),
            store=store,
            generators=generators,
        )


def same(got, want):
    want = want if isinstance(want, tuple) else (want,)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        if isinstance(w, torch.Tensor):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)
            assert g.stride() == w.stride()
        else:
            assert g == w and type(g) is type(w)


def attention(x):
    b, s = x.shape[0], x.shape[1]
    q = x.view(b, s, 4, 8).transpose(1, 2)
    weights = torch.softmax(q @ (q * 0.5).transpose(-1, -2), -1)
    return (weights @ q).transpose(1, 2).reshape(b, s, 32)


def normalised(x, y):
    z = F.layer_norm(torch.softmax(x @ y, -1), (16,))
    return (z + 1).relu().view(-1, 4, 4).sum(-1), x.shape[0] * 2, z.sum(0)


def broadcast(x, y):
    return x + y, (x * y).sum(0), torch.cat([x, y], 1), torch.stack([x, y]), torch.cat([x, y, x]).contiguous()


def slices(x):
    return (
        x[1:],
        x[1:-1] * 2,
        x[:, :2].contiguous(),
        x[-1],
        x.mean(),
        x.var(0),
        x.flip(0),
        x.roll(1, 0),
        x.roll(-1, 1),
        F.pad(x, (1, 2, 0, 1)),
    )


_FIXED = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(4, 3, 3, 3, generator=_FIXED)


def images(x):
    y = torch.relu(F.conv2d(x, WEIGHT, padding=1))
    return F.max_pool2d(y, 2), F.adaptive_avg_pool2d(x, 1), F.avg_pool2d(y, 3, 2, 1), F.max_pool2d(y, 3, 1, 1), y.mean((2, 3))


WIDE, APART, POINT = (torch.randn(s, generator=_FIXED) / 8 for s in ((16, 8, 3, 3), (8, 1, 5, 5), (12, 8, 1, 1)))


def convolutions(x):
    """Large enough to be blocked products; images counted by a symbol."""
    y = torch.relu(F.conv2d(x, WIDE, padding=1) + 1)
    z = F.conv2d(x, WIDE, stride=2, dilation=2)
    return (
        y,
        F.max_pool2d(z, 2),
        F.silu(F.conv2d(x, APART, padding=2, groups=8)),
        F.conv2d(x, POINT) * x.shape[0],
        F.conv1d(x[:, :, 0], WIDE[:, :, 0]),
    )


def triangle(x):
    n = x.shape[0]
    i = torch.arange(n)
    return torch.where(i[:, None] >= i[None, :], x @ x.t(), -1.0), torch.full((n, n), 0.5).tril(), torch.zeros((n, 3)), i, i.sum()


def reshaped(x):
    return (
        x.reshape(-1),
        x.t().reshape(-1),
        x.unsqueeze(0).expand(3, -1, -1).reshape(-1, x.shape[1]),
        x.repeat(2, 1),
        x.flatten().view(x.shape),
    )


def halves(x):
    n = x.shape[1] // 2
    return torch.cat([-x[:, n:], x[:, :n]], 1), x.view(x.shape[0], 2, -1).transpose(0, 1).reshape(2, -1)


def numbers(x, n):
    return x * n, x / n, x + x.shape[0], x.shape[0] * n + 1, x.sum() / x.numel()


def gathered(x, y):
    ids = (y.abs() * 100).long() % x.shape[0]
    return x[ids], x.index_select(0, ids), torch.zeros_like(x).index_add(0, ids, y[:, None].expand(-1, x.shape[1]).contiguous())


@dataclass
class Case:
    """``assumed``: what may be assumed at most, as text; None: anything (a run at other sizes is then skipped where it breaks it)."""

    function: Any
    shapes: list[Any]
    hints: dict[str, int]
    assumed: set[str] | None = field(default_factory=set)


CASES = {
    "attention": Case(attention, [("a", "b", 32)], {"a": 4, "b": 6}),
    "equal hints": Case(attention, [("a", "b", 32)], {"a": 5, "b": 5}),
    "normalised": Case(normalised, [("a", 8), (8, 16)], {"a": 5}),
    "broadcast": Case(broadcast, [("a", "b"), ("a", "b")], {"a": 4, "b": 4}),
    "slices": Case(slices, [("a", "b")], {"a": 6, "b": 5}, None),
    "batches of images": Case(images, [("a", 3, 16, 16)], {"a": 4}),
    "convolutions": Case(convolutions, [("a", 8, 20, 20)], {"a": 4}),
    "sizes of images": Case(images, [("a", 3, "b", "b")], {"a": 4, "b": 16}, None),
    "triangle": Case(triangle, [("a", 8)], {"a": 5}),
    "reshaped": Case(reshaped, [("a", "b")], {"a": 5, "b": 4}),
    "halves": Case(halves, [("a", "b")], {"a": 5, "b": 8}, None),
    "numbers": Case(numbers, [("a", 3), "b"], {"a": 4, "b": 3}),
    "gathered": Case(gathered, [("a", 3), ("b",)], {"a": 7, "b": 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_right_at_other_sizes(name, store, generators):
    case = CASES[name]
    captured = Captured(case.shapes, case.hints)
    run = compiled(case.function, captured, store, generators)
    if case.assumed is not None:
        assert {str(d.relation) for d in captured.sizes.decisions} <= case.assumed
    assert captured.holds(case.hints)
    tried = 0
    for values in ({n: v for n, v in zip(case.hints, vs, strict=True)} for vs in itertools.product(SIZES, repeat=len(case.hints))):
        if not captured.holds(values):
            continue
        tried += 1
        inputs = captured.inputs(values)
        with torch.no_grad():
            same(run.executable(*inputs), case.function(*inputs))
    assert tried >= len(SIZES) // 2


def test_an_equation_decided_unites_the_symbols(store, generators):
    """Two sizes that an operator wants to be equal are one from then on; inputs that break it are refused, not misread."""
    captured = Captured([("a", 3), ("b", 3)], {"a": 4, "b": 4})
    run = compiled(lambda x, y: x * y, captured, store, generators)
    assert [str(d.relation) for d in captured.sizes.decisions] == ["n_b == n_a"]
    x, y = torch.randn(6, 3), torch.randn(6, 3)
    same(run.executable(x, y), x * y)
    with pytest.raises(Exception, match="RC052"):
        run.executable(x, torch.randn(7, 3))


def test_a_size_decided_to_be_one_is_broadcast(store, generators):
    """Also where the equation cannot be solved for a symbol."""
    captured = Captured([(2, "a", 4)], {"a": 2})

    def last_half(x):
        return x + x.log1p().chunk(2, 1)[-1].cumsum(2)

    run = compiled(last_half, captured, store, generators)
    x = torch.rand(2, 2, 4)
    same(run.executable(x), last_half(x))


def test_temporaries_share_an_arena_that_grows(store, generators):
    captured = Captured([("a", 64), (64, 64)], {"a": 8})

    def chain(x, w):
        for _ in range(6):
            x = torch.relu(x @ w) + 1
        return x

    run = compiled(chain, captured, store, generators)
    if not generators:
        return
    w = torch.randn(64, 64) / 8
    for n in (8, 100, 3, 100, 7):
        x = torch.randn(n, 64)
        same(run.executable(x, w), chain(x, w))
    assert run.executable.arena_bytes <= 4 * 100 * 64 * 4


def test_what_was_assumed_is_assumed_again_from_the_store(tmp_path, generators):
    store = Store(tmp_path)

    def double_rows(x):
        return x.view(2, -1, 4) + 1 if x.shape[0] > 3 else x

    gm = torch.fx.Graph()
    x = gm.placeholder("x")
    size = gm.call_method("size", (x, 0))
    first = gm.call_function(torch.ops.aten.slice.Tensor, (x, 0, 0, 3))
    gm.output((gm.call_function(torch.add, (first, 1)), size))
    module = torch.fx.GraphModule(torch.nn.Module(), gm)
    found = []
    for hint in (5, 9):
        captured = Captured([("a", 4)], {"a": hint})
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="GI030")
            run = compile_graph(module, captured.examples, store=store, generators=generators)
        found.append(([str(d) for d in captured.sizes.decisions], run.report.cached))
    assert [cached for _, cached in found] == [False, True]
    assert found[0][0] == found[1][0] and any("n_a >= 3" in d for d in found[0][0])
    captured = Captured([("a", 4)], {"a": 2})  # what was assumed is wrong here: compiled anew
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GI030")
        run = compile_graph(module, captured.examples, store=store, generators=generators)
    assert not run.report.cached
    x = torch.randn(2, 4)
    same(run.executable(x), (x + 1, 2))


def test_kernels_do_not_depend_on_the_sizes_at_hand(store):
    if not installed_generators():
        pytest.skip("no kernel generator is installed")
    plans = []
    for hint in (3, 50):
        captured = Captured([("a", 8), (8, 16)], {"a": hint})
        plans.append(compiled(normalised, captured, store, installed_generators(), cache=False).plan)
    assert plans[0] == plans[1]


def test_numbers_that_are_no_symbols_are_refused(store, generators):
    with torch.no_grad(), pytest.raises(GraphError, match="GI009"):
        compile_graph(torch.fx.symbolic_trace(lambda x, n: x * n), [torch.ones(3), 2], store=store, generators=generators)


def test_writes_to_inputs_of_any_size(store, generators):
    captured = Captured([("a", 4), ("a", "b", 2)], {"a": 5, "b": 3})

    def write(x, y):
        x[1:, :2] = 7.0
        y.mul_(x.shape[0])
        return y.sum(1)

    gm = torch.fx.Graph()
    x, y = gm.placeholder("x"), gm.placeholder("y")
    part = gm.call_function(torch.ops.aten.slice.Tensor, (gm.call_function(torch.ops.aten.slice.Tensor, (x, 0, 1)), 1, 0, 2))
    gm.call_method("fill_", (part, 7.0))
    n = gm.call_method("size", (x, 0))
    gm.call_method("mul_", (y, n))
    gm.output((gm.call_method("sum", (y, 1)),))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GI030")
        run = compile_graph(torch.fx.GraphModule(torch.nn.Module(), gm), captured.examples, store=store, generators=generators)
    for a, b in itertools.product((2, 5, 9), (2, 3, 16)):
        ours, theirs = ([torch.ones(a, 4), torch.arange(a * b * 2.0).view(a, b, 2)] for _ in range(2))
        same(run.executable(*ours), write(*theirs))
        same(ours, tuple(theirs))


def test_gradients_at_other_sizes(store, generators):
    """Sizes are named as an environment names them: rows must not confuse them with names of their own."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Softmax(-1), torch.nn.Linear(16, 4)
    )
    sizes = Sizes()
    context, moving = FakeContext(sizes), {0: sizes.new(2), 1: sizes.new(3)}
    example = context.from_tensor(torch.randn(2, 3, 8, requires_grad=True), moving)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GI030")
        run = compile_graph(
            torch.fx.symbolic_trace(model), [example], options=GraphOptions(verify=True), store=store, generators=generators
        )
    assert not sizes.decisions
    for rows, columns in itertools.product((2, 5, 17), (3, 8)):
        found = []
        x = torch.randn(rows, columns, 8)
        for call in (model, lambda t: run(t)[0]):
            model.zero_grad()
            leaf = x.clone().requires_grad_()
            call(leaf).square().mean().backward()
            found.append([leaf.grad, *(p.grad.clone() for p in model.parameters())])
        for theirs, ours in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
            assert ours.stride() == theirs.stride()


def test_symbols_by_name_are_those_of_the_environment():
    sizes = Sizes()
    assert str(sizes.new(4)) == "s0" and sizes.hint(index("s0") * 2) == 8
