"""Options of graph-ir."""

import dataclasses

import pytest

from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.options import GraphOptions
from opmill_graph_ir.pipeline import NAMES, OPTIONAL


def test_they_are_hashed_whole():
    assert len({GraphOptions(), GraphOptions(fusion=False), GraphOptions(skip=("cse",)), GraphOptions()}) == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        GraphOptions().fusion = False


@pytest.mark.parametrize("given", [{"skip": ("lower",)}, {"skip": ("nothing",)}, {"print_after": ("nothing",)}])
def test_steps_that_are_not_there_or_needed(given):
    with pytest.raises(GraphError, match="GI016"):
        GraphOptions(**given)


def test_what_is_printed():
    assert all(GraphOptions(print_after=("all",)).prints(name) for name in NAMES)
    assert GraphOptions(print_after=("cse",)).prints("cse") and not GraphOptions(print_after=("cse",)).prints("dce")
    assert GraphOptions(skip=tuple(OPTIONAL)).skip
