"""Pictures of graphs: what is read stands above its readers, and nothing stands on anything else."""

import itertools
import random

import pytest

from opmill.trace.layout import HEIGHT, WIDTH, place


def test_nothing_needs_no_nodes():
    placed = place([])
    assert placed.at == () and placed.height > 0


def test_a_chain_is_a_column():
    placed = place([[], [0], [1]])
    assert len({x for x, _ in placed.at}) == 1 and [y for _, y in placed.at] == sorted(y for _, y in placed.at)


@pytest.mark.parametrize("seed", range(20))
def test_readers_stand_below_and_apart(seed):
    rng = random.Random(seed)
    reads = [sorted({rng.randrange(-1, k) for _ in range(rng.randrange(3))}) if k else [] for k in range(rng.randrange(1, 25))]
    placed = place(reads)
    assert len(placed.at) == len(reads)
    for node, sources in enumerate(reads):
        assert all(placed.at[s][1] + HEIGHT <= placed.at[node][1] for s in sources if s >= 0)
    for (x, y), (v, w) in itertools.combinations(placed.at, 2):
        assert abs(x - v) >= WIDTH or abs(y - w) >= HEIGHT
    assert all(0 <= x and x + WIDTH <= placed.width and 0 <= y and y + HEIGHT <= placed.height for x, y in placed.at)
