"""Sets that captured code makes give their items in the order of those that Python makes, also where operators left room in their tables."""

import random

import pytest
import torch

from opmill_bytecode_frontend import capture

NAMES = "abcd"


def program(seed: int) -> str:
    """Some sets of small numbers, operators and methods on them, and all of them returned."""
    r = random.Random(seed)
    lines, made = [], []
    for name in NAMES:
        items = [r.choice([*range(9), 16, 31, 95, 102, 127, 1000 + seed]) for _ in range(r.randrange(1, 12))]
        kind = r.choice(["set", "frozenset", "set"])
        text = r.choice([f"{kind}({items})", f"{kind}(iter({items}))", f"{kind}(dict.fromkeys({items}))", f"{kind}({{*{items}, n}})"])
        if made and r.random() < 0.7:
            text = f"{r.choice(made)} {r.choice('^-|&^')} {text}"
        lines.append(f"    {name} = {text}")
        made.append(name)
        if r.random() < 0.5:
            lines.append(f"    {name} = set({name})")
            lines.append(f"    {name}.{r.choice(['discard', 'add'])}({r.choice(items)})")
    return "def fn(x, n):\n" + "\n".join(lines) + f"\n    return {', '.join(NAMES)}, x + 1"


@pytest.mark.parametrize("seed", range(120))
def test_items_come_in_pythons_order(seed: int) -> None:
    names: dict = {}
    exec(program(seed), names)
    compiled = capture(names["fn"], backend="eager", fullgraph=True)
    for n in (2, 95, 3):
        want, found = names["fn"](torch.zeros(2), n)[:-1], compiled(torch.zeros(2), n)[:-1]
        assert list(map(type, found)) == list(map(type, want))
        assert list(map(list, found)) == list(map(list, want)), program(seed)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_made_of_a_set_of_before_that_got_items(seed):
    """Items whose hashes collide tell in which order they came."""
    draw = random.Random(seed)
    numbers = [0, 1, 2, 3, 8, 9, 10, 16, 18, 26]
    given = draw.sample(numbers, draw.randint(0, 3))
    steps = [(draw.choice(["add", "add", "discard"]), draw.choice(numbers)) for _ in range(draw.randint(1, 4))]
    name, other = draw.choice(["union", "difference", "symmetric_difference", "intersection"]), draw.sample(numbers, 4)

    def program(x, held):
        for step, number in steps:
            getattr(held, step)(number)
        made = getattr(held, name)(other)
        made.add(34)
        return x + 1, made, held.copy(), made | held

    def run(function):
        held = set(given)
        return [repr(function(torch.ones(1), held)[1:]), list(held)]

    assert run(capture(program)) == run(program)
