"""Minimum cuts against all cuts."""

import itertools
import random

from opmill_graph_ir.capture.cut import INFINITE, Network


def weight(edges, behind):
    return sum(c for a, b, c in edges if a not in behind and b in behind)


def test_no_cut_is_lighter():
    chance = random.Random(0)
    for _ in range(300):
        inner = range(chance.randint(0, 5))
        nodes = ["s", *inner, "t"]
        edges = [(a, b, chance.choice([0, 1, 2, 3, 7, INFINITE])) for a in nodes for b in nodes if a != b and chance.random() < 0.5]
        network = Network()
        for edge in edges:
            network.add(*edge)
        found = network.sink_side("s", "t")
        cuts = [{"t", *some} for k in range(len(inner) + 1) for some in itertools.combinations(inner, k)]
        lightest = min(weight(edges, cut) for cut in cuts)
        if lightest < INFINITE:
            assert "s" not in found
            assert weight(edges, found) == lightest
            assert len(found) == min(len(c) for c in cuts if weight(edges, c) == lightest)  # the nearest to the sink
