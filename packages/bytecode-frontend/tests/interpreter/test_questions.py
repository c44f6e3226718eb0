"""What is said of a question that only data answer."""

import pytest
import torch

from opmill_bytecode_frontend.graph.questions import is_the_programs, name_of, refused, register


@pytest.mark.parametrize(
    ("op", "own"), [("mine::op", True), ("torchvision::nms", True), ("aten::add", False), ("prims::add", False), ("add", False)]
)
def test_whose_an_operator_is(op, own):
    assert is_the_programs(op) is own


def test_what_to_do_can_be_done():
    """The hint is a line of Python."""
    hint = register("mine::op")
    line = hint[hint.index("@") : hint.index(")") + 1]
    assert compile(f"{line}\ndef f(x): ...", "hint", "exec")


def test_a_branch_has_another_hint_than_a_number():
    what, _, hint = refused("__bool__", "why")
    assert "branch" in what and "torch.cond" in hint
    what, why, hint = refused("tolist", "why")
    assert what == "tolist of a tensor" and why == "why" and "torch.where" in hint


def test_names():
    assert name_of(torch.add) == "add" and name_of("fill_") == "fill_"
