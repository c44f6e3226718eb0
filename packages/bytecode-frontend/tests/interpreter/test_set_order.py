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
