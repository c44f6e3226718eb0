"""Trees of modules that are changed between calls, and several of one make called in turn: always what a plain call gives."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from typing import Any

import pytest
import torch
from alike import near, same
from random_modules import CHANGES, WIDTH, Pair, outcome, state_of, tree

from opmill_bytecode_frontend import capture
from opmill_bytecode_frontend.options import CaptureOptions

SEEDS = 12
STEPS = 14


def run(module: Any, x: torch.Tensor) -> Any:
    return module(x) * 2


def check(seed: int, steps: int = STEPS) -> int:
    """Runs one program; gives the number of its graphs."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(None)
        return gm.forward

    captured = capture(run, backend, options=CaptureOptions(recompile_limit=1000))
    first = Pair(tree(rng))
    pairs = [first, first.another(), Pair(tree(rng))]
    done: list[str] = []
    for step in range(steps):
        pair = pairs[rng.randrange(len(pairs))]
        number, number_seed = rng.randrange(len(CHANGES)), rng.randrange(1 << 30)
        pair.change(number, number_seed)
        done.append(f"{pairs.index(pair)}: {CHANGES[number].__name__}")
        if rng.random() < 0.1:
            pairs[pairs.index(pair)] = pair = pair.another()
            done.append("copied")
        dtype = rng.choice([torch.float32] * 5 + [torch.float64])
        x = torch.randn(3, WIDTH, dtype=dtype)
        with torch.set_grad_enabled(rng.random() < 0.5):
            for again in range(2):
                torch.manual_seed(step)
                want = outcome(run, pair.plain, x)
                got = outcome(captured, pair.twin, x)
                assert same(want, got, near()), (seed, again, done, want, got)
                if isinstance(want, type):  # how far a call that fails has come is not told
                    pairs[pairs.index(pair)] = Pair(pair.plain)
                    break
                assert same(state_of(pair.plain), state_of(pair.twin), near()), (seed, again, done)
    return len(graphs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_trees_of_modules(seed: int) -> None:
    check(seed)


@pytest.mark.filterwarnings("ignore")
def test_instances_share_what_was_captured() -> None:
    """Trees of one make need no graph of their own, and nothing keeps them."""
    for seed in range(8):
        rng = random.Random(seed)
        graphs: list[Any] = []
        captured = capture(run, lambda gm, inputs: graphs.append(None) or gm.forward)  # noqa: B023
        original, x = copy.deepcopy(tree(rng)), torch.randn(3, WIDTH)
        with torch.no_grad():
            for _ in range(4):
                outcome(captured, original, x)
            made = len(graphs)
            gone = []
            for _ in range(5):
                pair = Pair(original)
                want, got = outcome(run, pair.plain, x), outcome(captured, pair.twin, x)
                assert same(want, got, near()), seed
                gone += [weakref.ref(each) for each in (pair.twin, *pair.twin.parameters())]
                del pair
        assert len(graphs) == made, seed
        gc.collect()
        assert not any(each() is not None for each in gone), seed


if __name__ == "__main__":  # a campaign: python test_random_modules.py FIRST LAST
    import sys
    import warnings

    warnings.simplefilter("ignore")
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            check(seed, 30)
        except Exception as error:
            print(seed, type(error).__name__, str(error)[:2000], flush=True)
