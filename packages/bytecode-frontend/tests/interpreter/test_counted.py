"""Sizes and numbers that only data tell: captured whole where nothing is decided on them, right for any data."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from asserting import asserts, caught
from random_counted import arguments, compiled_text, differ, outcome, write_program

from opmill_bytecode_frontend import Unsupported, capture

F = torch.nn.functional


def data(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A tensor, a mask of its rows (of none up to all), a number."""
    generator = torch.Generator().manual_seed(seed)
    share = [0.0, 1.0, 0.2, 0.5, 0.15][seed % 5]
    return torch.randn(9, 4, generator=generator), torch.rand(9, generator=generator) < share, torch.randint(0, 9, (), generator=generator)


def check(fn: Any, whole: bool = True) -> int:
    """Compares ``fn`` with its captured form on ten inputs; how many graphs there are."""
    translations: list[Any] = []
    compiled = capture(fn, "eager", fullgraph=whole, on_translation=translations.append)
    for seed in range(10):
        results = []
        for run in (fn, compiled):
            args = data(seed)
            try:
                found = run(*args)
            except (RuntimeError, LookupError, ValueError, AssertionError) as exc:
                found = (type(exc).__name__, str(exc))
            results.append((found if isinstance(found, tuple) else (found,), args))
        for a, b in zip(*[(*found, *args) for found, args in results], strict=True):
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(b, a, rtol=0, atol=0, equal_nan=True)
            else:
                assert type(a) is type(b)
                assert a == b
    return len(translations)


def sizes(x, m, i):
    y = x[m]
    n = y.shape[0]
    return y.sum(0), n, 2 * n + 1, len(y), y.numel(), n > 3


def slices(x, m, i):
    n = i.item()
    return x[:n] * 2, x[n:], x[:, : n + 1], n, [n, {"n": n}]


def subscripts(x, m, i):
    y = x.clone()
    y[i] = 0
    y[1:, i // 3] = y[1:, 0] * 2
    return x[i], x[i, 1:], x[1:, i // 3], x[..., i // 3, None], x[None, i], y


def numbers(x, m, i):
    n = int(i)
    return torch.arange(n) + 1, x * n, torch.zeros(n, 3), torch.full((2,), n), i.view(1).tolist(), m.sum().item()


def writes(x, m, i):
    x[m] = 0
    out = torch.empty_like(x)
    out[m] = x[m].sin()
    out[~m] = x[~m].cos()
    return out, x[m].sum()


def chained(x, m, i):
    y = x[m]
    z = y[y[:, 0] > 0]
    return torch.cat([y, z]), z.shape[0] + y.shape[0], *torch.where(m), m.nonzero(), *torch.unique(m.long(), return_counts=True)


def checked(x, m, i):
    n = i.item()
    torch._check(n >= 2, lambda: "too small")
    torch._check(n <= 8)
    return x[:n].max(0)[0], n - 2


def may_raise(x, m, i):
    return x[m].max(0)[0], x[m].view(2, -1)


def fitted(x, m, i):
    y = x[m]
    torch._check(y.shape[0] == 3)
    return y + torch.ones(3, 4)


def told(x, m, i):
    return f"{x[m].shape[0]} rows", x * 2


@pytest.mark.parametrize("fn", [sizes, slices, subscripts, numbers, writes, chained, checked, may_raise, fitted, told])
def test_one_graph(fn):
    assert check(fn) == 1


def decides(x, m, i):
    y = x[m]
    if y.shape[0] > 3:
        return y * 2
    return y + 1


def counts(x, m, i):
    total = x
    for k in range(i.item()):
        total = total + k
    return total


def iterates(x, m, i):
    return tuple(row * 2 for row in x[m])


def adds(x, m, i):
    return x[m] + torch.ones(3, 4)


@pytest.mark.parametrize(
    ("fn", "code", "what"),
    [
        (decides, "FE037", "a decision on u0 >= 4"), (counts, "FE037", ("a number that only data tell is "
            "needed")), (iterates, "FE030", "unbind"), (adds, "FE030", "add"),
    ],
)  # fmt: skip
def test_decisions_end_the_graph(fn, code, what):
    check(fn, whole=False)
    with pytest.raises(Unsupported) as caught:
        capture(fn, "eager", fullgraph=True)(*data(3))
    assert caught.value.code == code
    assert what in str(caught.value)
    assert "test_counted.py" in str(caught.value)


def raises(x, m, i):
    if m.all():
        raise ValueError("all of them")
    if not m.any():
        raise RuntimeError
    y = x[m]
    if y.shape[0] == 2 or x.sum() > 1e6:
        raise KeyError("two")
    return y


def of_torch(x, m, i):
    return F.gaussian_nll_loss(x, x * 2, x + i)


def joined(x, m, i):
    x = x.clone()
    x[~m] += x[~m].sin()
    a, b = x.split([i.item(), 9 - i.item()])
    return x[m] + x[m].cos(), torch.cat([a * 2, b * 3]) + x


def described(x, m, i):
    for what, ok in (("mask", m), ("number", x[0] * i > -9)):
        if not ok.any():
            raise ValueError(f"{what} of {tuple(ok.shape)}: {i!r}" + " is wrong")
    return x * 2


def of_distributions(x, m, i):
    d = torch.distributions
    both = d.Independent(d.Uniform(x, x + 1), 1).log_prob(x + 0.5), d.Bernoulli(logits=x).log_prob((x > 0).float())
    return d.Normal(x, x.abs() + i - 1).log_prob(x + 1) * 2, d.Categorical(logits=x).entropy(), *both


def again(x, m, i):
    for _ in range(3):
        if not m.any():
            raise ValueError("none")
    return x * 2


@pytest.mark.parametrize("fn", [asserts, raises, described, of_torch, of_distributions, again, joined])
def test_checked_when_the_graph_runs(fn):
    assert check(fn) == 1


def own_error(x, m, i):
    if m.any():
        raise OwnError("any")
    return x * 2


class OwnError(ValueError):
    pass


def test_errors_that_matter_to_the_program_are_not_left_to_the_graph():
    log: list[int] = []

    def changes_something(x, m, i):
        log.append(1)
        if not m.any():
            raise ValueError
        return x * 2

    for fn in (caught, own_error, changes_something):
        check(fn, whole=False)
        with pytest.raises(Unsupported, match="FE030"):
            capture(fn, "eager", fullgraph=True)(*data(3))
    assert len(log) == 20


def test_the_refusal_says_where_the_number_came_from():
    with pytest.raises(Unsupported, match=r"u0 is aten::index.Tensor at .*test_counted.py:\d+(.|\n)*hint: torch._check"):
        capture(decides, "eager", fullgraph=True)(*data(3))


def test_objects_keep_what_the_graph_counted():
    class Box:
        count = 0

    box = Box()

    def f(x, m, i):
        box.count = x[m].shape[0]
        return x[m] * 2

    compiled = capture(f, "eager", fullgraph=True)
    for seed in range(5):
        x, m, i = data(seed)
        compiled(x, m, i)
        assert box.count == int(m.sum())
        assert type(box.count) is int


def test_with_symbolic_sizes_of_inputs():
    def f(x, m):
        y = x[m]
        return y.sum(0), y.shape[0] + x.shape[0], x[: y.shape[0]]

    translations: list[Any] = []
    compiled = capture(f, "eager", fullgraph=True, on_translation=translations.append)
    for n in (5, 7, 9, 11, 4):
        x = torch.randn(n, 3)
        for m in (x[:, 0] > 0, x[:, 0] > 9):
            for a, b in zip(compiled(x, m), f(x, m), strict=True):
                assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    assert len(translations) == 2


def test_other_backends_get_the_graphs_before_and_behind():
    graphs: list[Any] = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    def f(x, m):
        return (x * 2)[m] + 1

    compiled = capture(f, backend)
    for seed in range(4):
        x, m, _ = data(seed)
        torch.testing.assert_close(compiled(x, m), f(x, m))
    assert len(graphs) >= 2


@pytest.mark.parametrize("first", range(0, 90, 15))
def test_random_programs(first):
    for seed in range(first, first + 15):
        rng = random.Random(seed)
        text = write_program(rng, rng.randrange(2, 9))
        fn = compiled_text(text)
        compiled = capture(fn, "eager")
        for _ in range(4):
            args = arguments(rng)
            assert not differ(outcome(fn, args), outcome(compiled, args)), f"seed {seed}\n{text}"


def test_degrees_of_nodes_of_graphs_of_any_size() -> None:
    """Each layer of a network on graphs divides by them; a node that is none makes them more than there are."""

    def layer(x: torch.Tensor, edges: torch.Tensor) -> Any:
        n = x.shape[0]
        messages = torch.zeros_like(x).index_add(0, edges[1].clamp(max=n - 1), x[edges[0]])
        degrees = torch.bincount(edges[1], minlength=n).clamp(min=1)
        return F.relu(messages / degrees[:, None]) + x, degrees

    made: list[Any] = []
    compiled = capture(layer, "eager", on_translation=made.append)
    for n in (4, 6, 5, 9, 7, 2):
        for beyond in (0, 0, 1):
            generator = torch.Generator().manual_seed(n)
            x, edges = torch.randn(n, 3, generator=generator), torch.randint(0, n, (2, 2 * n + 1), generator=generator)
            edges[1, 0] = n - 1 + beyond
            results = []
            for each in (layer, compiled):
                try:
                    results.append(each(x, edges))
                except RuntimeError as error:
                    results.append((type(error), str(error)))
            torch.testing.assert_close(results[1], results[0], rtol=0, atol=0) if not beyond else None
            assert not beyond or results[0] == results[1]
    assert len(made) <= 3
