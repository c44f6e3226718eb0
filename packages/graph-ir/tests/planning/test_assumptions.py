"""What a graph assumes of sizes, as data."""

from opmill_fake_tensors.symbols import Relation, Sizes, index
from opmill_graph_ir.planning.assumptions import Assumed, assume, assumptions_of, fits


def sizes_of(n, m):
    sizes = Sizes()
    sizes.new(n, name="s0")
    sizes.new(m, name="s1")
    return sizes


def test_decisions_are_told_and_taken_again():
    sizes = sizes_of(8, 4)
    sizes.operator, sizes.where = "view", lambda: "a.py:3"
    sizes.decide(Relation(index("s0") - 2 * index("s1"), "=="))
    sizes.decide(Relation(index("s0") * index("s1") - 100, ">="))  # does not hold: less is decided
    told = assumptions_of(sizes)
    assert told[0] == Assumed("s0 + -2*s1", "==", "view", "a.py:3") or {t.kind for t in told} == {"==", ">="}
    assert fits(sizes_of(16, 8), told) is (16 * 8 <= 99) and fits(sizes_of(6, 3), told) and not fits(sizes_of(6, 4), told)
    other = sizes_of(6, 3)
    other.operator = "mine"
    assume(other, told)
    assert assumptions_of(other) == told and (other.operator, other.where) == ("mine", None)


def test_without_symbols_nothing_is_assumed():
    assert assumptions_of(None) == () and fits(None, ()) and not fits(None, (Assumed("s0 + -4", ">="),))
    assume(None, ())
