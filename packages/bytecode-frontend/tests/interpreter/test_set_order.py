"""Sets give their items in the order that eager's have, which follows from their whole past; drawn at random."""

from __future__ import annotations

import random

import pytest
import torch

from opmill_bytecode_frontend import capture

FIRST = [
    "{{{ints}}}",
    "set([{ints}])",
    "set(({ints},))",
    "frozenset({{{ints}}})",
    "frozenset([{ints}])",
    "{{*range({few}), {ints}}}",
    "{{i * {few} - 4 for i in range(8)}}",
    "set({{each: 0 for each in [{ints}]}})",
    "set({{each: 0 for each in [{ints}]}}.keys())",
    "set('{ints}')",
    "{{None, 1.5, True, 'a', (1, 'b'), {ints}}}",
    "set(set([{ints}]))",
]
NAMES = ["union", "intersection", "difference", "symmetric_difference"]
LATER = [
    *["{a} | {b}", "{a} & {b}", "{a} - {b}", "{a} ^ {b}"],
    *[form for name in NAMES for form in ("{a}." + name + "({b})", "{a}." + name + "([{ints}])")],
    "{a}.union([{ints}], {b})",
    "{a}.copy()",
    "set({a})",
    "frozenset({a})",
    "{{*{a}, *{b}}}",
    "{{each for each in {a} if each not in {b}}}",
]
CHANGES = [
    *["add({one})", "discard({one})", "update([{ints}])", "update({b})", "update({{each: 0 for each in {b}}})"],
    *["difference_update({b})", "symmetric_difference_update({b})", "intersection_update({b})", "difference_update([{ints}])", "clear()"],
]


def drawn(seed, changing):
    """A program that makes sets of one another, and the names of those that were made in one step."""
    r = random.Random(seed)

    def filled(form, names=()):
        ints = ", ".join(str(r.randrange(-9, 40)) for _ in range(r.randrange(1, 9)))
        a, b = (r.choice(names), r.choice(names)) if names else ("", "")
        return form.format(ints=ints, few=r.randrange(1, 9), one=r.randrange(-9, 40), a=a, b=b)

    lines, names = ["def f(x):"], []
    for i in range(r.randrange(1, 4)):
        names.append(f"s{i}")
        lines.append(f"    s{i} = {filled(r.choice(FIRST))}")
    simple = list(names)
    for i in range(r.randrange(4) if changing else 0):
        lines.append(f"    t{i} = {filled(r.choice(LATER), names)}")
        names.append(f"t{i}")
        if r.random() < 0.5:
            lines.append(f"    if type(t{i}) is set: t{i}.{filled(r.choice(CHANGES), names)}")
    taken = f"{names[-1]}.pop() if type({names[-1]}) is set and {names[-1]} else None"
    lines.append(f"    return x + 1, {taken}, {', '.join(f'list({each})' for each in names)}, {', '.join(simple[: -1 or None])}")
    return "\n".join(lines)


@pytest.mark.parametrize("changing", [False, True], ids=["made", "changed"])
@pytest.mark.parametrize("start", range(0, 60, 20))
def test_order(start, changing):
    for seed in range(start, start + 20):
        text = drawn(seed, changing)
        space: dict = {}
        exec(text, space)
        want = str(space["f"](torch.ones(1)))
        assert str(capture(space["f"], "eager")(torch.ones(1))) == want, text
