"""Keys of the program's own that tell when they are hashed and compared: as often as in eager, and in the same order."""

import random

import pytest
import torch

from opmill_bytecode_frontend import capture


class Key:
    def __init__(self, value, log):
        self.value, self.log = value, log

    def __hash__(self):
        self.log.append(("hash", self.value))
        return hash(self.value % 3)

    def __eq__(self, other):
        self.log.append(("equal", self.value, getattr(other, "value", other)))
        return isinstance(other, Key) and self.value == other.value

    def __repr__(self):
        return f"Key({self.value})"


STEPS = """S.add(#) | S.discard(#) | # in S | S |= {#} | T = S | {#, #} | T = S & {#, #} | T = S - {#} | T = S ^ {#, #} | T = set(S)
D[#] = 1 | D.get(#) | D.pop(#, None) | D.setdefault(#, 2) | D.update({#: 3}) | T = dict(D) | T = D.copy() | # in D | T = D.keys() & {#}
T = D.keys() - S | T = S == {#} | T = S <= set(D) | T = S.isdisjoint([#]) | T = S.union([#, #]) | S.intersection_update([#, #])
T = {x for x in L} | T = {x: 1 for x in L} | T = dict.fromkeys(L) | T = frozenset(L) | T = L.count(#) | T = L == [#] | T = S.issuperset(L)"""


def program(seed):
    chosen = random.Random(seed)
    steps = [step.strip() for line in STEPS.splitlines() for step in line.split(" | ") if step.strip()]
    lines = []
    for step in chosen.choices(steps, k=4):
        while "#" in step:
            step = step.replace("#", f"a[{chosen.randrange(5)}]", 1)
        lines.append(step)
    body = "\n    ".join(lines)
    text = f"def f(x, a):\n    S = {{a[0], a[1]}}\n    D = {{a[2]: 0, a[3]: 1}}\n    L, T = [a[0], a[4]], None\n    y = x + 1\n    {body}"
    names = {}
    exec(f"{text}\n    return y * 2, repr((S, D, L, T))\n", names)
    return names["f"]


@pytest.mark.parametrize("seed", range(40))
def test_keys_that_tell_when_they_are_asked(seed):
    def outcomes(call):
        for values in ((1, 2, 3, 4, 5), (1, 2, 3, 4, 5), (1, 4, 1, 7, 2)):
            log = []
            y, text = call(torch.ones(2), [Key(value, log) for value in values])
            yield y.tolist(), text, log

    f = program(seed)
    assert list(outcomes(capture(f, "eager"))) == list(outcomes(f))
