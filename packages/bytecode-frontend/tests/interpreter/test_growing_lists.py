"""Lists and deques that have other lengths at each call: what is asked of a length is assumed, and no more."""

from __future__ import annotations

import collections
import random
from typing import Any

import pytest
import torch
from alike import same

from opmill_bytecode_frontend import capture

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@pytest.mark.parametrize("bounded", [None, 4, 30])
@pytest.mark.parametrize("kind", [list, collections.deque])
def test_a_history_that_grows_is_captured_a_few_times(kind: type, bounded: int | None) -> None:
    def waits(x: torch.Tensor, memory: Any) -> torch.Tensor:
        return x if len(memory) < 6 else x * 2

    memory: Any = collections.deque(maxlen=bounded) if kind is collections.deque else []
    translations: list[object] = []
    compiled = capture(waits, "eager", on_translation=translations.append)
    for step in range(20):
        memory.append(step)
        assert torch.equal(compiled(torch.ones(2), memory), waits(torch.ones(2), memory))
    assert len(translations) <= 3


USES = [
    "len(m) {op} {n}", "{n} {op} len(m)", "bool(m)", "not len(m)", "len(m) + 1", "m[-1]", "m[0]", "m[-2]", "m.append(x.sum())", "m.pop()",
    "len(m) % 2", "range(len(m))", "list(m)", "m.extend([1, 2])", "sum(1 for _ in m)", "1 in m", "len(m) {op} len(m)", "str(len(m))",
    "x[: len(m)]", "[*m][len(m) - 1]", "m.copy()", "max(len(m), {n})", "m.reverse()", "m == other", "len(m) is {n}", "x.sum() * len(m)", "len(m)",
    "(len(m), x)", "{{len(m): 1}}",
]  # fmt: skip


@pytest.mark.parametrize("kind", [list, collections.deque, 3])
@pytest.mark.parametrize("first", range(0, 120, 20))
@pytest.mark.filterwarnings("ignore")
def test_random_uses_of_lengths(first: int, kind: Any) -> None:
    """``kind``: of the container; a number is a deque of that length at most."""
    for seed in range(first, first + 20):
        rng = random.Random(seed)
        texts = [rng.choice(USES).format(op=rng.choice(COMPARISONS), n=rng.randrange(6)) for _ in range(4)]
        lines = [f"    try: found.append({text})\n    except (IndexError, ValueError) as error: found.append(str(error))" for text in texts]
        names: dict[str, Any] = {}
        exec("\n".join(["def program(x, m, other):", "    found = []", *lines, "    return x + 1, found"]), names)
        program = names["program"]
        compiled = capture(program, "eager")
        ours, theirs = (collections.deque(maxlen=kind) if type(kind) is int else kind() for _ in range(2))
        for step in range(9):
            for each in (ours, theirs):
                each.append(step)
                if step == 6:
                    each.popleft() if kind is not list else each.pop(0)
            x, other = torch.arange(5.0) + step, [1, 2] if kind is list else collections.deque([0, 1])
            assert same(compiled(x, ours, other), program(x, theirs, other)), texts
            assert same(ours, theirs), texts
            assert getattr(ours, "maxlen", None) == getattr(theirs, "maxlen", None)


def test_a_replay_memory() -> None:
    memory: collections.deque[Any] = collections.deque(maxlen=50)
    plain: collections.deque[Any] = collections.deque(maxlen=50)

    def learn(x: torch.Tensor, memory: Any) -> Any:
        memory.append((x, x.sum() > 0))
        if len(memory) < 4:
            return None
        states, flags = zip(*random.sample(memory, 4), strict=True)
        return torch.stack(states).mean(0), torch.stack(flags)

    translations: list[object] = []
    compiled = capture(learn, "eager", on_translation=translations.append)
    before = 0
    for step in range(30):
        x = torch.randn(3, generator=torch.Generator().manual_seed(step))
        random.seed(step)
        want = learn(x, plain)
        random.seed(step)
        assert same(compiled(x, memory), want) and len(memory) == len(plain)
        before = len(translations) if step < 12 else before
    assert len(translations) == before
