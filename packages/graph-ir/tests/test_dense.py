"""Strides of memory without gaps, against torch's."""

import itertools

import pytest
import torch

from opmill_fake_tensors.symbols import Index
from opmill_graph_ir.dense import contiguous
from opmill_graph_ir.loops.index import index

N = index("n")


@pytest.mark.parametrize("sizes", [(), *itertools.product((0, 1, 3), repeat=2), *itertools.product((0, 1, 2, 5), repeat=3)], ids=str)
def test_numbers_are_those_of_torch(sizes):
    expected = torch.empty(sizes).stride()
    assert contiguous(sizes) == expected
    assert tuple(index(s).constant for s in contiguous(tuple(map(index, sizes)))) == expected


@pytest.mark.parametrize("size", range(1, 5))
def test_expressions_are_those_of_torch_where_their_symbols_are_known(size):
    sizes = (2, N, 3, N + 1)
    strides = [index(s).evaluate({"n": size}) for s in contiguous(sizes)]
    known = tuple(index(s).evaluate({"n": size}) for s in sizes)
    assert tuple(strides) == torch.empty(known).stride()


def test_a_number_stays_one_until_an_expression_is_met():
    assert [isinstance(s, Index) for s in contiguous((N, 4, 2))] == [False, False, False]
    assert contiguous((2, N, 4))[0] == N * 4
