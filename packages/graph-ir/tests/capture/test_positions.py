"""Formulas of tensors that are made of counting: each element as torch computes it, also with sizes that are symbols."""

import random

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from opmill_graph_ir.capture.formulas import Choice, axis
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.positions import Positions
from opmill_graph_ir.loops.index import Index

INF = float("inf")


def values_of(formula, sizes, dtype):
    """The tensor that a formula describes."""
    found = torch.zeros(sizes, dtype=dtype)
    for place in torch.ones(sizes).nonzero().tolist():
        found[tuple(place)] = element(formula, {axis(len(sizes) - d): n for d, n in enumerate(place)})
    return found


def element(formula, at):
    if isinstance(formula, Index):
        return formula.evaluate(at)
    holds = all(part.evaluate(at) >= 0 for part in formula.when.parts) != formula.when.negated
    return formula.yes if holds else formula.no


def formulas_of(fn, *inputs):
    """Of what ``fn`` returns."""
    graph = functionalize(make_fx(fn)(*inputs), list(inputs))
    positions = Positions(graph)
    return [positions.formula(o.value) for o in graph.outputs]


def whole(n=5):
    return torch.arange(n)


MADE = {
    "arange": lambda: torch.arange(3, 11, 2),
    "backward": lambda: torch.arange(9, 1, -3),
    "sums": lambda: 3 * torch.arange(5)[:, None] - torch.arange(4) + 7,
    "rsub": lambda: 1 - torch.arange(4),
    "differences": lambda: torch.diff(torch.arange(6)[None], prepend=torch.arange(6)[None, :1] - 1, dim=-1),
    "documents": lambda: (torch.diff(whole()[None], prepend=whole()[None, :1] - 1, dim=-1) != 1).cumsum(-1),
    "triangle": lambda: torch.ones(4, 6, dtype=torch.bool).tril(1),
    "upper": lambda: torch.triu(torch.full((5, 5), -INF), diagonal=1),
    "filled": lambda: torch.zeros(4, 4).masked_fill(torch.ones(4, 4).tril() == 0, -INF),
    "chosen": lambda: torch.where(whole()[:, None] >= whole(), 0.0, torch.finfo(torch.float32).min),
    "inverted": lambda: (1.0 - (whole()[:, None] >= whole()).float()) * -10000.0,
    "window": lambda: (whole() <= whole()[:, None]) & (whole() > whole()[:, None] - 2),
    "outside": lambda: (whole() > whole()[:, None]) | (whole() <= whole()[:, None] - 2),
    "not outside": lambda: ~((whole() > whole()[:, None]) | (whole() <= whole()[:, None] - 2)),
    "gathered": lambda: torch.arange(10, 20)[None].expand(2, -1)[torch.arange(2)[:, None] * 0, torch.arange(5)[None] + 3],
    "views": lambda: torch.arange(6).view(1, 6, 1).transpose(1, 2).unsqueeze(0).squeeze(1).permute(2, 0, 1).clone(),
    "parts": lambda: torch.arange(12)[-7:-1][1::2].clone(),
    "selected": lambda: (torch.arange(4)[:, None] * 5 + torch.arange(5)).select(0, -2).clone(),
    "equal": lambda: torch.arange(4)[:, None] == torch.arange(5),
    "unequal": lambda: torch.arange(4)[:, None] != torch.arange(5) - 1,
    "like": lambda: torch.full_like(torch.arange(3), 2),
}
UNKNOWN = {
    "random": lambda: torch.rand(3) > 0.5,
    "squares": lambda: torch.arange(4) * torch.arange(4),
    "floats": lambda: torch.arange(4) * 0.5,
    "quotients": lambda: torch.arange(4) // 2,
    "from the end": lambda: torch.arange(4)[torch.arange(4) - 1],
    "turned": lambda: torch.cat([torch.arange(3), torch.arange(3)]),
    "both sides": lambda: ((whole() > 2) | (whole() < 1)) & (whole() != 2),
}


@pytest.mark.parametrize("name", MADE)
def test_each_element_is_torchs(name: str) -> None:
    (formula,), wanted = formulas_of(MADE[name]), MADE[name]()
    assert formula is not None
    assert torch.equal(values_of(formula, wanted.shape, wanted.dtype), wanted)


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_more_than_a_formula_is_not_known(name: str) -> None:
    assert formulas_of(UNKNOWN[name]) == [None]


def test_elements_of_an_input_are_not_known_and_those_like_it_are() -> None:
    given, more, ones, zeros = formulas_of(lambda x: (x, x + 1, torch.ones_like(x), x.new_zeros(3)), torch.randn(2, 2))
    assert (given, more) == (None, None)
    assert isinstance(ones, Choice) and isinstance(zeros, Choice)
    assert (ones.yes, ones.no, zeros.yes, zeros.no) == (1.0, 1.0, 0.0, 0.0)


def random_number(rng: random.Random, depth: int, sizes: tuple[int, ...]) -> str:
    """Text of a tensor of whole numbers, or a number, that broadcasts to ``sizes``."""
    if depth == 0 or rng.random() < 0.15:
        start = rng.randint(-2, 2)
        row, column = f"torch.arange({start}, {start + sizes[1]})", f"torch.arange({start}, {start + sizes[0]})[:, None]"
        return rng.choice([row, column, str(rng.randint(-3, 3)), f"torch.full({sizes}, {start})"])
    a, b = (random_number(rng, depth - 1, sizes) for _ in range(2))
    return rng.choice([f"({a} + {b})", f"({a} - {b})", f"({a} * {rng.randint(-2, 2)})"])


def random_truth(rng: random.Random, depth: int, sizes: tuple[int, ...]) -> str:
    if depth == 0:
        a, b = f"(torch.arange({sizes[1]}) + {random_number(rng, 2, sizes)})", random_number(rng, 2, sizes)
        return f"({a} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {b})"
    a, b = (random_truth(rng, depth - 1, sizes) for _ in range(2))
    wide = f"({a}).expand{sizes}"
    ways = [f"({a} & {b})", f"({a} | {b})", f"~{a}", f"{wide}.tril({rng.randint(-1, 1)})", f"{wide}.clone()[None].squeeze(0)"]
    return rng.choice([*ways, f"torch.cat([{wide}[:1], {wide}[1:]])"])


@pytest.mark.parametrize("seed", range(80))
def test_random_masks(seed: int) -> None:
    rng = random.Random(seed)
    sizes = rng.randint(1, 5), rng.randint(1, 5)
    truth = random_truth(rng, rng.randint(0, 3), sizes)
    text = rng.choice([truth, f"torch.where({truth}, 0.0, -float('inf'))", f"torch.zeros({sizes}).masked_fill({truth}, -1.0)"])
    fn = eval(f"lambda: {text}", {"torch": torch})
    (formula,), wanted = formulas_of(fn), fn()
    if formula is not None:
        assert torch.equal(values_of(formula, wanted.shape, wanted.dtype), wanted), text


def test_most_random_masks_are_known() -> None:
    texts = [random_truth(random.Random(seed), 2, (4, 5)) for seed in range(40)]
    known = sum(formulas_of(eval(f"lambda: {text}", {"torch": torch})) != [None] for text in texts)
    assert known >= 20
