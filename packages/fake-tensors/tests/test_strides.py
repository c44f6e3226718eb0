"""Strides of results are those that eager gives: random layouts, with torch itself as the oracle."""

import random

import pytest
import torch

from opmill_fake_tensors import FakeContext, strides


def layout(rng: random.Random, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of this shape that lies somehow: permuted, with gaps, expanded."""
    order = rng.sample(range(len(shape)), len(shape))
    gaps = [rng.choice([1, 1, 1, 2]) for _ in shape]
    whole = torch.empty([shape[d] * gaps[d] for d in order]).permute([order.index(d) for d in range(len(shape))])
    made = whole[tuple(slice(None, None, step) for step in gaps)] if shape else whole
    return made.narrow(0, 0, 1).expand(shape) if shape and shape[0] > 1 and rng.random() < 0.15 else made


def shape_of(rng: random.Random, most: int = 4) -> tuple[int, ...]:
    return tuple(rng.choice([0, 1, 1, 2, 3, 4]) if rng.random() < 0.3 else rng.randint(1, 4) for _ in range(rng.randint(0, most)))


@pytest.mark.parametrize("seed", range(600))
def test_results_of_pointwise_operators(seed):
    rng = random.Random(seed)
    shape = shape_of(rng)
    operands = []
    for _ in range(rng.randint(1, 2)):
        own = tuple(1 if rng.random() < 0.15 else n for n in shape[rng.randint(0, 1) if shape else 0 :])
        operands.append(layout(rng, own))
    operands[0] = layout(rng, shape)
    want = operands[0].exp() if len(operands) == 1 else torch.add(*operands)
    given = [(tuple(o.shape), o.stride()) for o in operands]
    assert strides.broadcast([sizes for sizes, _ in given]) == tuple(want.shape)
    assert strides.pointwise(tuple(want.shape), given) == want.stride()


@pytest.mark.parametrize("seed", range(600))
def test_copies_that_keep_the_layout(seed):
    rng = random.Random(seed)
    made = layout(rng, shape_of(rng, 5))
    assert strides.like(made.shape, made.stride()) == made.clone().stride()
    assert strides.contiguous(made.shape) == made.contiguous().stride() or made.is_contiguous()


@pytest.mark.parametrize("seed", range(100))
def test_dense_is_without_gaps_and_overlap(seed):
    rng = random.Random(seed)
    made = layout(rng, tuple(n or 1 for n in shape_of(rng)))
    places = torch.as_strided(torch.arange(strides.extent(made.shape, made.stride())), made.shape, made.stride()).flatten().tolist()
    assert strides.is_dense(made.shape, made.stride()) is (sorted(places) == list(range(made.numel())))


def test_shapes_that_do_not_fit_are_refused_in_eagers_words():
    with pytest.raises(RuntimeError) as told:
        strides.broadcast([(2, 3), (2, 4)])
    with pytest.raises(RuntimeError) as want:
        torch.empty(2, 3) + torch.empty(2, 4)
    assert str(told.value) == str(want.value)


BESIDE_NUMBERS = {
    "mul": lambda x: x * 2,
    "rsub": lambda x: 1 - x,
    "div": lambda x: torch.div(x, 2, rounding_mode="floor"),
    "floor_divide": lambda x: x // 2,
    "gt": lambda x: x > 0,
    "pow": lambda x: x**2,
    "rpow": lambda x: 2**x,
    "clamp": lambda x: x.clamp(0, 1),
    "xlogy": lambda x: torch.xlogy(x, 2.0),
    "add": lambda x: torch.add(x, x, alpha=2),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "shift": lambda x: x.to(torch.int32) << 1,
}


@pytest.mark.parametrize("name", BESIDE_NUMBERS)
def test_without_elements_beside_a_number(name):
    rng = random.Random(name)
    for _ in range(12):
        shape = [rng.choice([0, 1, 2, 3]) for _ in range(rng.randint(1, 4))]
        shape[rng.randrange(len(shape))] = 0
        x = torch.empty_strided(shape, [rng.randint(1, 9) for _ in shape])
        context = FakeContext()
        with context:
            got = BESIDE_NUMBERS[name](context.from_tensor(x))
        assert got.stride() == BESIDE_NUMBERS[name](x).stride(), (shape, x.stride())
