"""Graphs whose sizes only data tell: compiled once, right for all data, none and one chosen element included; what eager refuses is refused
alike."""

import random
import warnings

import pytest
import torch

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.options import GraphOptions
from opmill_runtime_cache.store import Store

F = torch.nn.functional


def floats(*shape):
    return lambda rng: torch.randn(*shape)


def leaf(*shape):
    return lambda rng: torch.randn(*shape, requires_grad=True)


def ints(low, high, *shape):
    return lambda rng: torch.randint(low, high, shape)


def mask(*shape):
    return lambda rng: torch.rand(*shape) < rng.choice([0.0, 0.1, 0.2, 0.6, 1.0])


def one_true(n):
    return lambda rng: torch.arange(n) == rng.randrange(n)


def some(count, n):
    return lambda rng: torch.randperm(n) < count


CHOSEN = (floats(9, 4), mask(9))
CASES = {
    "alone": (lambda x, m: x[m], *CHOSEN),
    "pointwise": (lambda x, m: x[m].relu() * 2 + torch.ones(4), *CHOSEN),
    "reduced": (lambda x, m: (x[m].sum(0), x[m].mean(1), x[m].softmax(0), x[m].softmax(1), x[m].any(0)), *CHOSEN),
    "multiplied": (lambda x, m: (x[m] @ x.t(), x[m].t() @ x[m], F.linear(x[m], torch.ones(3, 4), torch.ones(3)).relu()), *CHOSEN),
    "normalised": (lambda x, m: (F.layer_norm(x[m], (4,)), F.normalize(x[m])), *CHOSEN),
    "sizes": (lambda x, m: (x[m].shape[0] * 2, x[m].numel(), x[m].shape[0] // 2), *CHOSEN),
    "found": (lambda m: (m.nonzero(), m.nonzero() * 2, torch.argwhere(m)), mask(3, 4)),
    "joined": (lambda x, m: (torch.cat([x[m], x, x[m] * 2]), torch.stack([x[m], x[m] + 1])), *CHOSEN),
    "counted up": (lambda i: (torch.arange(i.item()) * 2, torch.full((i.item(), 2), 1.5) + 1), ints(0, 5)),
    "cut": (lambda x, i: (x[: i.item()] * 2, x[i.item() :] + 1, x[i.item() :: 2] * 3), floats(5, 3), ints(-7, 8)),
    "cut behind": (lambda x, i: (x[-3 : i.item()] * 2, x[:, : i.item() - 2].sum(1)), floats(5, 3), ints(-7, 8)),
    "selected": (lambda x, i: x.select(0, i.item()) * 2, floats(5, 3), ints(-8, 8)),
    "put": (lambda x, m: (x.index_put((m,), x[m] * 2), x.masked_fill(m[:, None], 0.0)), *CHOSEN),
    "distinct": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), ints(0, 5, 12)),
    "repeated": (lambda x, r: torch.repeat_interleave(x, r, dim=0) * 2, floats(5, 2), ints(0, 3, 5)),
    "tallied": (lambda x: torch.bincount(x) + 1, ints(0, 9, 7)),
    "numbers": (lambda x, i: x * i.item() + i.item(), floats(3), ints(-5, 5)),
    "viewed": (lambda x, m: (x[m].view(-1, 2).sum(1), x[m].t() + 1, x[m].t().contiguous() * 2, x[m].t().reshape(-1) + 1), *CHOSEN),
    "may not divide": (lambda x, m: x[m].view(3, -1).sum(1), *CHOSEN),
    "may be nothing": (lambda x, m: x[m].max(0)[0] * 2, *CHOSEN),
    "one": (lambda x, m: (x[m] * 2, x[m].sum(), x[m] @ x[m].t()), floats(6, 4), one_true(6)),
    "padded": (lambda x, i: F.pad(x, (0, 0, 0, i.item())) * 2, floats(3, 2), ints(-4, 5)),
    "ordered": (lambda x, m: (x[m].sort(0)[0] * 2, x[m].cumsum(0) + 1, x[m].topk(2, 1)[0]), *CHOSEN),
    "looked up": (lambda x, m: (F.embedding(m.nonzero()[:, 0], x) * 2, x[m.nonzero()[:, 0]] + 1), *CHOSEN),
    "lost": (lambda x, m: F.cross_entropy(x[m], torch.zeros(9, dtype=torch.long)[m]), *CHOSEN),
    "twice": (lambda x, m: (lambda y: y[y[:, 0] > 0] * 2)(x[m] + 1), *CHOSEN),
    "large": (lambda x, m: (x[m].relu().sum(1) + 1).softmax(0), floats(2000, 40), mask(2000)),
}
TRAINED = {
    "pointwise": (lambda x, m: (x[m].exp() * 2).sum(), leaf(9, 4), mask(9)),
    "multiplied": (lambda x, m, w: ((x[m] @ w).relu().sum(0), x.sum()), leaf(9, 4), mask(9), leaf(4, 3)),
    "leaves": (lambda x, m: x[m] * 3, leaf(9, 4), mask(9)),
    "cut": (lambda x, i: (x[: i.item()] * 2).sin().sum(1), leaf(5, 3), ints(-7, 8)),
    "lost": (lambda x, m: F.cross_entropy(x[m], torch.zeros(9, dtype=torch.long)[m], reduction="sum"), leaf(9, 4), mask(9)),
    "selected": (lambda x, m: x.masked_select(m[:, None]).exp().sum(), leaf(9, 4), mask(9)),
    "distinct": (lambda x, i: x[torch.unique(i)].exp().sum(1), leaf(9, 4), ints(0, 9, 5)),
    "put": (lambda x, m, v: (x * 2).index_put((m,), v.exp()).sum(1), leaf(9, 4), some(5, 9), leaf(5, 4)),
}


def outcome(function, args):
    try:
        found = function(*args)
    except Exception as error:
        return error
    return found if isinstance(found, tuple) else tuple(found) if isinstance(found, list) else (found,)


def same(got, want):
    if isinstance(want, Exception):
        assert type(got) is type(want) and str(got) == str(want)
        return
    assert not isinstance(got, Exception), got
    for g, w in zip(got, want, strict=True):
        if not isinstance(w, torch.Tensor):
            assert g == w
            continue
        torch.testing.assert_close(g, w, equal_nan=True)
        assert w.numel() == 0 or all(a == b or n == 1 for n, a, b in zip(w.shape, g.stride(), w.stride(), strict=True))
        assert g._is_view() == w._is_view() or not w._is_view()


def compiled(function, args, store, generators):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GI030")
        gm = torch.fx.symbolic_trace(function)
        return compile_graph(gm, args, options=GraphOptions(verify=True), store=store, generators=generators)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GI032")
        yield


@pytest.mark.parametrize("name", CASES)
def test_any_data(name, store, generators):
    function, *makers = CASES[name]
    rng = random.Random(0)
    torch.manual_seed(0)
    with torch.no_grad():
        graph = compiled(function, [m(rng) for m in makers], store, generators)
        for _ in range(10):
            args = [m(rng) for m in makers]
            same(outcome(graph, args), outcome(function, args))


@pytest.mark.parametrize("name", TRAINED)
def test_gradients(name, store, generators):
    function, *makers = TRAINED[name]
    rng = random.Random(0)
    torch.manual_seed(0)
    graph = compiled(function, [m(rng) for m in makers], store, generators)
    for _ in range(8):
        args = [m(rng) for m in makers]
        leaves = [a for a in args if a.requires_grad]
        results = []
        for fn in (graph, function):
            out = outcome(fn, args)
            tracked = [o for o in out if o.requires_grad]
            results.append((*out, *torch.autograd.grad(tracked, leaves, [torch.ones_like(o) for o in tracked])))
        same(*results)


def test_a_failed_demand_says_which_size_it_is_and_where_it_came_from(store):
    with torch.no_grad():
        graph = compiled(lambda x, m: x[m].view(3, -1) * 2, [torch.ones(9, 4), torch.ones(9) > 0], store, ())
    with pytest.raises(RuntimeError) as caught:
        graph(torch.ones(9, 4), torch.arange(9) < 2)
    assert str(caught.value) == "shape '[3, -1]' is invalid for input of size 8"
    assert "RC059" in str(caught.value.__context__)
    assert "u0 is aten::index.Tensor" in str(caught.value.__context__)


def test_plans_come_back_from_the_store(tmp_path):
    def function(x, m):
        return x[m].max(0)[0] * 2

    x, store = torch.randn(9, 4), Store(tmp_path)
    with torch.no_grad():
        first, second = (compiled(function, [x, x[:, 0] > 0], store, ()) for _ in range(2))
        assert second.report.cached and not first.report.cached
        for m in (x[:, 0] > 0, x[:, 0] > 9):
            same(outcome(second, [x, m]), outcome(function, [x, m]))


def test_inputs_are_written_when_all_demands_are_checked(store, generators):
    def function(x, i, n):
        x.add_(1)
        return x * 2, torch.ones(3).select(0, n.item()) * 2

    with torch.no_grad():
        graph = compiled(function, [torch.ones(4), torch.ones(4), torch.tensor(1)], store, generators)
        for n in (0, 2, 5):
            x, y = torch.ones(4), torch.ones(4)
            same(outcome(graph, [x, None or torch.ones(4), torch.tensor(n)]), outcome(function, [y, torch.ones(4), torch.tensor(n)]))
            assert torch.equal(x, y)
