"""Pytrees in captured code: trees of every kind taken apart and put together as torch does it, plain ones in one step."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from random import Random
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.options import CaptureOptions

Pair = namedtuple("Pair", "a b")
KEPT = {"d": {"z": 1.5, "w": torch.ones(2)}, "l": [torch.zeros(2), None]}


def tree(random: Random, x: Any, depth: int = 0) -> Any:
    """Containers of multiples of ``x``, numbers, texts and None."""
    kind = random.choice(
        ["leaf"] * (1 + depth) + ["tuple", "list", "dict", "pair", "ordered", "default"][: 6 if random.random() < 0.3 else 3]
    )
    if kind == "leaf" or depth > 3:
        return random.choice([x, x * 2, 3, 2.5, None, "text", True])
    items = [tree(random, x, depth + 1) for _ in range(2 if kind == "pair" else random.randrange(4))]
    names = [random.choice("abcdef") + str(k) for k in range(len(items))]
    made = {
        "tuple": tuple,
        "list": list,
        "dict": lambda v: dict(zip(names, v)),
        "pair": lambda v: Pair(*v),
        "ordered": lambda v: OrderedDict(zip(names, v)),
    }
    return made[kind](items) if kind in made else defaultdict(list, zip(names, items))


def doubled(leaf: Any) -> Any:
    return leaf if leaf is None or isinstance(leaf, str) else leaf * 2


def uses(made: Any, other: Any) -> Any:
    leaves, spec = pytree.tree_flatten(made)
    back = pytree.tree_unflatten([doubled(leaf) for leaf in leaves], spec)
    facts = spec.num_leaves, spec.num_nodes, spec.num_children, spec.is_leaf(), str(spec), spec == pytree.tree_structure(made)
    try:
        above = pytree._broadcast_to_and_flatten(other, spec)
        beside = spec.flatten_up_to(other)
    except ValueError as error:
        above, beside = None, sorted(str(error))  # it names sets of texts, whose order follows hashes that differ from process to process
    return (
        back,
        facts,
        above,
        beside,
        pytree.tree_leaves(made),
        pytree.tree_map(doubled, made),
        pytree.tree_leaves(made, is_leaf=lambda v: type(v) is list),
        spec,
    )


def same(a: Any, b: Any) -> bool:
    (mine, at), (other, there) = pytree.tree_flatten(a), pytree.tree_flatten(b)
    return at == there and all(
        torch.equal(m, o) if isinstance(m, torch.Tensor) else m == o and type(m) is type(o) for m, o in zip(mine, other, strict=True)
    )


@pytest.mark.parametrize("seed", range(60))
def test_trees_are_what_torch_makes_of_them(seed: int) -> None:
    """Made inside, given, and kept outside; beside another tree that is often of the same shape as far as it goes."""

    def inside(x, given):
        random = Random(seed)
        made, other = tree(random, x), tree(Random(seed if seed % 3 else seed + 1), 7)
        return uses(made, other), uses(given, made), uses(KEPT, 5)

    x = torch.arange(3.0)
    made = [inside(x, tree(Random(seed + 1000), x))]
    fresh = capture(inside, "eager")
    for _ in range(2):
        assert same(fresh(x, tree(Random(seed + 1000), x)), made[0])


def test_a_wrong_number_of_leaves_is_told_as_torch_tells_it() -> None:
    def few(x):
        spec = pytree.tree_flatten((x, [x]))[1]
        try:
            return pytree.tree_unflatten([x], spec)
        except ValueError as error:
            return str(error)

    x = torch.ones(2)
    assert capture(few, "eager", fullgraph=True)(x) == few(x)


def test_transforms_and_their_trees_stay_in_the_graph() -> None:
    def batched(x, y):
        both = torch.vmap(lambda pair, b: {"s": (pair[0] * b).sum(), "t": [pair[1]]}, in_dims=((0, None), 0), out_dims={"s": 0, "t": [1]})
        return both((x, y[0]), y), torch.func.vjp(lambda a, b: (a * b, {"q": a + b}), x, y)[1]((x, {"q": y}))

    x, y = torch.rand(3, 3), torch.rand(3, 3)
    assert same(capture(batched, "eager", fullgraph=True)(x, y), batched(x, y))


def test_scans_take_few_steps_for_their_trees() -> None:
    """What a capture of this scan interprets; with torch's own trees it was more than 60,000, and minutes for a model of seventy such
    layers."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def scanned(x, y):
        return associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, y), dim=0, combine_mode="generic")

    x, y = torch.rand(24, 3), torch.rand(24, 3)
    whole = capture(scanned, "eager", fullgraph=True, options=CaptureOptions(max_steps=15_000))
    assert same(whole(x, y), scanned(x, y))
