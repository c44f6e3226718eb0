"""Contracts of kernels against every access that the kernels make: what they say is touched is what is touched."""

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opmill_graph_ir.generator.contract import contract_of
from opmill_graph_ir.loops.index import floordiv, index, mod
from opmill_graph_ir.loops.ir import Axis, Buffer, Const, IndexValue, Let, Load, LoopKernel, Nest, Op, Phase, Ref, Store
from opmill_runtime_cache.plan.expr import evaluate

SYMBOLS = ("s0", "s1")
AXES = ("i", "j")
ONE = Const(1.0, "float32")


def kernel(at, axes, *, symbols=SYMBOLS, numel=1000, load=None, lets=()) -> LoopKernel:
    """Stores at an index of a buffer over axes; with ``load``, what is read from another buffer."""
    value = ONE if load is None else load
    phase = Phase(lets=lets, stores=(Store("out", index(at), value),))
    nest = Nest(tuple(Axis(name, index(extent)) for name, extent in axes.items()), (phase,))
    return LoopKernel("k", (Buffer("a", "float32", "in", index(numel)), Buffer("out", "float32", "out", index(numel))), (nest,), symbols)


def touched(at, axes, values):
    """All places of an index, by going through all points."""
    extents = [index(extent).evaluate(values) for extent in axes.values()]
    return [index(at).evaluate({**values, **dict(zip(axes, point, strict=True))}) for point in itertools.product(*map(range, extents))]


def said(made, values):
    """By a contract: elements of each buffer, and whether nothing is below them."""
    contract = contract_of(made)
    return [evaluate(t.numel, values) for t in contract.buffers], evaluate(contract.floor, values) >= 0


numbers = st.integers(-3, 4)
symbols = st.sampled_from(SYMBOLS)
leaves = st.sampled_from(AXES).map(index)
factors = st.one_of(st.integers(-2, 3).map(index), symbols.map(index))
positive = st.one_of(st.integers(1, 4).map(index), symbols.map(index))
terms = st.one_of(
    st.builds(lambda a, f: a * f, leaves, factors),
    st.builds(lambda a, d: floordiv(a, d), leaves, positive),
    st.builds(lambda a, d, f: floordiv(a * f, d), leaves, positive, st.integers(1, 3)),
    st.builds(lambda a, d: mod(a, d), leaves, positive),
    st.builds(lambda s, n: index(s) * n, symbols, numbers),
    numbers.map(index),
)
indices = st.lists(terms, min_size=1, max_size=3).map(lambda items: sum(items, index(0)))
extents = st.one_of(st.integers(1, 4).map(index), symbols.map(index), st.builds(lambda s, n: index(s) + n, symbols, numbers))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(indices, extents, extents, st.integers(-3, 5), st.integers(-3, 5))
def test_what_is_said_is_what_is_touched(at, rows, columns, s0, s1):
    axes, values = {"i": rows, "j": columns}, {"s0": s0, "s1": s1}
    made = kernel(at, axes)
    negative = any(extent.evaluate(values) < 0 for extent in (rows, columns))
    try:
        (_, most), above = said(made, values)
        places = [] if negative else touched(at, axes, values)
    except ZeroDivisionError:
        assume(False)
    if negative:
        assert not above
        return
    if above and most != 1000:  # nothing is reached that is not said
        assert not places or (min(places) >= 0 and max(places) < most)
    if min(s0, s1) >= 0 and not meets(at) and not divides_by_zero(at, values):  # and no kernel that stays inside is refused
        assert above or (places and min(places) < 0)
        assert max(most, 0) == max(places, default=-1) + 1 or not above or (most == 1000 and places)


def meets(at) -> bool:
    """Whether an axis is in several quotients and remainders of an index."""
    names = [name for atom in at.atoms() for name in ([atom] if isinstance(atom, str) else atom.numerator.symbols) if name in AXES]
    return len(names) != len(set(names))


def divides_by_zero(at, values) -> bool:
    return any(atom.denominator.evaluate(values) == 0 for atom in at.atoms() if not isinstance(atom, str))


DIGITS = {  # what reshapes and shuffles of tensors make of an axis: quotients and remainders that are positions along dimensions
    "a transposed matrix, flat": (mod("i", "s0") * index("s1") + floordiv("i", "s0"), {"i": index("s0") * index("s1")}),
    "from an offset": (mod(index("i") + 1, "s0") * index("s1") + floordiv(index("i") + 1, "s0"), {"i": index("s0") * index("s1") - 1}),
    "two axes": (
        mod(index("i") * index("s1") + index("j"), "s0") * index("s1") + floordiv(index("i") * index("s1") + index("j"), "s0"),
        {"i": "s0", "j": "s1"},
    ),
    "backwards": (
        mod("i", "s1") - floordiv("i", "s1") * index("s1") + (index("s0") - 1) * index("s1"), {"i": index("s0") * index("s1")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DIGITS)
@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (3, 2), (4, 4), (5, 1), (0, 3), (3, 0)])
def test_axes_that_meet_in_an_index(what, sizes):
    """No more than a tensor of these sizes has, and no less than is touched."""
    at, axes = DIGITS[what]
    values = dict(zip(SYMBOLS, sizes, strict=True))
    (_, most), above = said(kernel(at, axes, numel=1), values)
    negative = any(index(extent).evaluate(values) < 0 for extent in axes.values())
    places = [] if negative else touched(at, axes, values)
    assert above == (not negative) and max(places, default=-1) < max(most, 0) <= sizes[0] * sizes[1]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_sizes_that_do_not_fit_each_other(n, s0, s1, times):
    """An axis of any length in quotients and remainders of any divisors: an edited plan gives what it likes."""
    at = mod("i", "s0") * index("s1") * times + floordiv("i", "s0") + mod(floordiv("i", 2), "s1")
    values = {"s0": s0, "s1": s1}
    (_, most), above = said(kernel(at, {"i": index(n)}, numel=0), values)
    assert above and most > max(touched(at, {"i": index(n)}, values))


def test_a_load_that_does_not_move_with_an_axis_counts_without_its_points():
    """It is computed outside of that axis's loop."""
    load = Load("a", index("i"), "float32")
    made = kernel(index("i") * index("s1") + index("j"), {"i": "s0", "j": "s1"}, numel=0, load=load)
    assert said(made, {"s0": 7, "s1": 0})[0] == [7, 0]


def test_nothing_is_divided_by_zero():
    made = kernel(mod("i", "s1"), {"i": "s0"})
    assert said(made, {"s0": 3, "s1": 1})[1] and not said(made, {"s0": 3, "s1": 0})[1] and said(made, {"s0": 0, "s1": 0})[1]
    value = Op("cast", (IndexValue(floordiv("i", "s1"), "int64"),), "float32")
    made = kernel("i", {"i": "s0"}, load=value)
    assert said(made, {"s0": 3, "s1": 2})[1] and not said(made, {"s0": 3, "s1": 0})[1]


def test_what_indices_are_read_from_lies_apart_from_what_is_written():
    """Even the masks that decide; the same memory only where each element is read at the point that writes it."""
    plain = Load("a", index("i"), "float32")
    assert contract_of(kernel("i", {"i": "s0"}, load=plain)).apart == ()
    lets = (Let("p", Load("a", index("i"), "int64")),)
    buffers = (Buffer("a", "int64", "in", index(9)), Buffer("x", "float32", "in", index(9)))

    def made(store, out="float32", symbols=("s0",)):
        phase = Phase(lets=lets, stores=(Store("out", index(store), Load("x", index("p"), "float32")),))
        return LoopKernel("k", (*buffers, Buffer("out", out, "out", index(9))), (Nest((Axis("i", index("s0")),), (phase,)),), symbols)

    assert contract_of(made("i")).apart == ((2, 0, False),)  # elements of another width
    assert contract_of(made("i", "int64")).apart == ((2, 0, True),)
    assert contract_of(made(index("i") + 1, "int64")).apart == ((2, 0, False),)
    assert contract_of(made("p", "int64")).apart == ((2, 0, False),)
    masked = Load("x", index("i"), "float32", Op("ne", (Load("a", index("i"), "int64"), Const(0, "int64")), "bool"), Const(0.0, "float32"))
    phase = Phase(stores=(Store("out", index("i") + 1, masked),))
    whole = LoopKernel("k", (*buffers, Buffer("out", "float32", "out", index(9))), (Nest((Axis("i", index(3)),), (phase,)),), ())
    assert contract_of(whole).apart == ((2, 0, False),)


SAID = {
    "rows of a matrix": (index("i") * index("s1") + index("j"), {"i": "s0", "j": "s1"}, (3, 4), 12, True),
    "none of them": (index("i") * index("s1") + index("j"), {"i": "s0", "j": "s1"}, (0, 4), 0, True),
    "rows with room between": (index("i") * 12 + index("j"), {"i": 5, "j": "s0"}, (0, 0), 0, True),
    "an extent of a sum": (index("i") * 2, {"i": index("s0") + 3}, (-2, 0), 1, True),
    "a negative extent": (index("i"), {"i": index("s0") + 3}, (-4, 0), 0, False),
    "backwards": (index("s0") - 1 - index("i"), {"i": "s0"}, (6, 0), 6, True),
    "backwards, too far": (index("s0") - 2 - index("i"), {"i": "s0"}, (6, 0), 5, False),
    "from an offset": (index("i") + index("s1"), {"i": "s0"}, (2, 3), 5, True),
    "from an offset before": (index("i") + index("s1"), {"i": "s0"}, (2, -1), 1, False),
    "a negative stride": (index("i") * index("s1"), {"i": "s0"}, (3, -1), None, False),
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_contracts_of(what):
    at, axes, sizes, most, above = SAID[what]
    got, fits = said(kernel(at, axes), dict(zip(SYMBOLS, sizes, strict=True)))
    assert fits == above and (most is None or max(got[1], 0) == most)


def test_masked_and_read_indices_are_held_to_the_buffer():
    """Their bounds are the affair of the kernel's masks and checks."""
    inside = Op("lt", (IndexValue(index("i"), "int64"), Const(3, "int64")), "bool")
    masked = Load("a", index("i") + 5, "float32", inside, Const(0.0, "float32"))
    read = Load("a", index("p"), "float32")
    lets = (Let("p", Load("a", index("i"), "int64")),)
    for load, before in ((masked, ()), (read, lets)):
        made = kernel("i", {"i": "s0"}, numel=index("s1"), load=load, lets=before)
        assert said(made, {"s0": 4, "s1": 9})[0][0] == 9
        assert said(made, {"s0": 0, "s1": 9})[0][0] == 0


def test_a_row_that_is_put_in_order_stores_its_beginning():
    phase = Phase((Axis("j", index(8)),), stores=(Store("out", index("i") * 3 + index("j"), Ref("v", "float32"), first=3),))
    nest = Nest((Axis("i", index("s0")),), (phase,))
    made = LoopKernel("k", (Buffer("out", "float32", "out", index("s0") * 3),), (nest,), ("s0",))
    assert said(made, {"s0": 4}) == ([12], True)


def test_a_buffer_that_nothing_touches_may_be_empty():
    assert said(kernel("i", {"i": "s0"}), {"s0": 4, "s1": 0})[0] == [0, 4]
