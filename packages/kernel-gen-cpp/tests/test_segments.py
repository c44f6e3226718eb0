"""Comparisons of positions with constants: between two points where they change, loops have none."""

import pytest

from opmill_graph_ir.loops.cases import op
from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Const, IndexValue, Load, Phase, Store
from opmill_kernel_gen_cpp.passes.segments import segments

X = Load("x", index("i"), "float32")


def phases(name: str, at: int, offset: int = 0):
    chosen = op("where", op(name, IndexValue(index("i") + offset, "int64"), Const(at, "int64")), X, op("neg", X))
    return (Phase(stores=(Store("y", index("i"), chosen),)),)


@pytest.mark.parametrize(
    ("name", "at", "offset", "cut"), [("lt", 32, 0, 32), ("ge", 32, 0, 32), ("le", 31, 0, 32), ("gt", 31, 0, 32), ("lt", 40, 8, 32)]
)
def test_both_sides_are_plain(name, at, offset, cut):
    found = segments(phases(name, at, offset), "i", 64, 8, {"i": (0, 63)})
    assert [(s.begin, s.end) for s in found] == [(0, cut), (cut, 64)]
    values = [s.phases[0].stores[0].value for s in found]
    first = name in ("lt", "le")
    assert values == [X, op("neg", X)] if first else [op("neg", X), X]


@pytest.mark.parametrize("at", [0, 64, 99, 33], ids=["begin", "end", "beyond", "inside a vector"])
def test_one_piece_where_nothing_changes_between_vectors(at):
    before = phases("lt", at)
    [one] = segments(before, "i", 64, 8, {"i": (0, 63)})
    assert (one.begin, one.end, one.phases) == (0, 64, before)


def test_one_piece_where_too_much_changes():
    many = tuple(p for at in (8, 16, 24, 32) for p in phases("lt", at))
    assert len(segments(many, "i", 64, 8, {"i": (0, 63)})) == 1
