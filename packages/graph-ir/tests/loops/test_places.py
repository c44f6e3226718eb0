"""Where two buffers of a kernel may be one piece of memory."""

import pytest

from opmill_graph_ir.loops.places import same_points
from opmill_graph_ir.loops.text import parse

TEXT = """kernel k()
  in x: float32[64]
  out y: float32[64]
nest i<8
  phase j<8
    set y[{to}] = exp(x[{at}])
"""
AFTER = "  phase j<8\n    set z[8*i + j] = x[8*i + j]\n"


@pytest.mark.parametrize(
    ("to", "at", "same"),
    [
        ("8*i + j", "8*i + j", True),
        ("8*j + i", "8*j + i", True),
        ("8*i + j", "8*j + i", False),  # the element is overwritten before it is read
        ("8*i + j", "8*i + 7", False),
        ("i", "i", False),  # written at eight points
    ],
)
def test_each_element_is_read_where_it_is_written(to, at, same):
    assert same_points(parse(TEXT.format(to=to, at=at)), "y", "x") is same


def test_what_is_read_behind_the_write_is_not():
    text = TEXT.format(to="8*i + j", at="8*i + j").replace("nest", "  out z: float32[64]\nnest")
    assert same_points(parse(text), "y", "x") and not same_points(parse(text + AFTER), "y", "x")
    assert same_points(parse(text + AFTER), "z", "x")
    two = text + "nest i<8\n  phase j<8\n    set z[8*i + j] = x[8*i + j]\n"
    assert not same_points(parse(two), "z", "x")
