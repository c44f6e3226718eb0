"""Labels of the program over the steps of a schedule."""

import random

import pytest

from opmill_graph_ir.planning.labels import spans


def shown(labels, steps):
    return [(label.name, label.begin, label.end, label.depth) for label in spans(labels, steps)]


@pytest.mark.parametrize(
    ("labels", "steps", "wanted"),
    [
        ([("a", -1)], [-1, 0, 0, -1], [("a", 1, 3, 0)]),
        ([("a", -1), ("b", -1)], [0, 0, 1, 1], [("a", 0, 2, 0), ("b", 2, 4, 0)]),
        ([("a", -1), ("b", 0), ("c", 0)], [0, 1, 2, 0], [("a", 0, 4, 0), ("b", 1, 2, 1), ("c", 2, 3, 1)]),
        ([("a", -1), ("b", -1)], [0, 1, 0, 1], [("a", 0, 1, 0), ("b", 1, 4, 0)]),  # they overlap: the first ends where the next begins
        ([("a", -1), ("b", -1)], [1, 0], [("a", 1, 2, 0), ("b", 2, 2, 0)]),  # out of order
        ([("a", -1), ("gone", -1), ("b", -1)], [0, 2], [("a", 0, 1, 0), ("gone", 1, 1, 0), ("b", 1, 2, 0)]),
        ([("gone", -1), ("in it", 0)], [-1, -1], [("gone", 0, 0, 0), ("in it", 0, 0, 1)]),
        ([("a", -1), ("in it", 0)], [1], [("a", 0, 1, 0), ("in it", 0, 1, 1)]),
        ([("a", -1)], [], [("a", 0, 0, 0)]),
    ],
)
def test_spans(labels, steps, wanted):
    assert shown(labels, steps) == wanted


@pytest.mark.parametrize("seed", range(50))
def test_every_label_is_there_once_in_order_and_inside_of_the_one_around_it(seed):
    rng = random.Random(seed)
    labels = [(str(k), rng.randrange(-1, k)) for k in range(rng.randrange(1, 12))]
    # Numbers are given as labels open: what is around one is open then.
    open_now, kept = [-1], []
    for k in range(len(labels)):
        around = rng.choice(open_now)
        open_now = [*open_now[: open_now.index(around) + 1], k]
        kept.append((str(k), around))
    steps = [rng.randrange(-1, len(kept)) for _ in range(rng.randrange(20))]
    found = spans(kept, steps)
    assert [label.name for label in found] == [name for name, _ in kept]
    around = []
    before = 0
    for label in found:
        del around[label.depth :]
        assert len(around) == label.depth and before <= label.begin <= label.end <= (around[-1].end if around else len(steps))
        before = label.begin
        around.append(label)
