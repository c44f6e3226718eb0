"""Inputs of a graph have names of their own: a graph that is written as Python takes each of them."""

from __future__ import annotations

import pytest
import torch

from opmill_bytecode_frontend import capture

APART = {torch.ones(2) * i for i in range(3)}
WEIGHTS = {torch.nn.Parameter(torch.ones(2) * i) for i in range(3)}


def of_a_set(x):
    for each in APART | WEIGHTS:
        x = x + each
    with torch.profiler.record_function("a label"):
        return x * 2


def of_an_item_and_an_argument(x):
    def inside(a, a_0, d):
        return a[0] + a[1] + a_0 + d["a"] + d[0] + d["0"]

    return inside([x, x + 1], x + 2, {"a": x + 3, 0: x + 4, "0": x + 5})


def given_items(a, a_0, d, p_a):
    return a[0] * 1 + a[1] * 2 + a_0 * 3 + d["a"] * 4 + d[0] * 5 + d["0"] * 6 + p_a * 7


def of_floats(x, y=1.5):
    return x * y + x * (y + 1)


@pytest.mark.parametrize("f", [of_a_set, of_an_item_and_an_argument, of_floats])
def test_one_argument(f):
    torch.testing.assert_close(capture(f, written)(torch.ones(2)), f(torch.ones(2)))


def test_items_and_arguments_of_one_name():
    parts = [torch.ones(2) * i for i in range(7)]
    given = (parts[:2], parts[2], {"a": parts[3], 0: parts[4], "0": parts[5]}, parts[6])
    torch.testing.assert_close(capture(given_items, written)(*given), given_items(*given))


def written(gm, inputs):
    gm.recompile()
    names = [node.target for node in gm.graph.nodes if node.op == "placeholder"]
    assert len(set(names)) == len(names)
    return gm.forward
