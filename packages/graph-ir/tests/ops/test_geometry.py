"""Views of views are strided views again: what is called with them needs no copy."""

import pytest

from opmill_graph_ir.capture.graph import Meta
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.ops.context import Context
from opmill_graph_ir.ops.views import reshape


@pytest.mark.parametrize("via", [[], [(2, 7, 24)], [(2, 7, 6, 4), (14, 24)], [(14, 2, 12)], [(2, 7, 2, 3, 2, 2)]], ids=str)
def test_reshaped_there_and_back(via):
    context = Context({})
    sizes = (2, 7, 2, 3, 4)
    view = context.buffer("b", Meta("float32", sizes, (168, 24, 12, 4, 1), "cpu"))
    for each in via:
        view = reshape(view, each)
    assert context.geometry(reshape(view, (14, 24))) == ((index(24), index(1)), index(0))
