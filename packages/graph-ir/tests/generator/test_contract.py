"""Contracts of kernels against every access that the kernels make: what they say is touched is what is touched."""

import itertools
import operator
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opmill_graph_ir.generator.contract import contract_of
from opmill_graph_ir.loops.index import floordiv, index, mod
from opmill_graph_ir.loops.ir import Axis, Buffer, Check, Const, IndexValue, Let, Load, LoopKernel, Nest, Op, Phase, Ref, Store
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


def compare(name, a, b):
    return Op(name, tuple(x if isinstance(x, (Op, Ref, Const, IndexValue)) else number(x) for x in (a, b)), "bool")


def number(value):
    value = index(value)
    return Const(value.constant, "int64") if value.constant is not None else IndexValue(value, "int64")


RAW = Ref("raw", "int64")
ZERO = Const(0, "int64")
POSITIONS = {  # what makes a position in a dimension of a number that was read, and the check on it: as operators are lowered
    "counted from the start": lambda n: (RAW, Op("logical_and", (compare("ge", RAW, 0), compare("lt", RAW, n)), "bool")),
    "counted from the end, too": lambda n: (
        Op("where", (compare("lt", RAW, 0), Op("add", (RAW, number(n)), "int64"), RAW), "int64"),
        Op("logical_and", (compare("ge", RAW, number(index(n) * -1)), compare("lt", RAW, n)), "bool"),
    ),
    "ignored where it is 2": lambda n: (
        Op("where", (compare("ne", RAW, 2), RAW, ZERO), "int64"),
        Op(
            "logical_or",
            (
                Op("logical_not", (compare("ne", RAW, 2),), "bool"),
                Op("logical_and", (compare("ge", RAW, 0), compare("lt", RAW, n)), "bool"),
            ),
            "bool",
        ),
    ),
    "the nearest": lambda n: (
        Op("max", (Op("min", (RAW, number(index(n) - 1)), "int64"), ZERO), "int64"),
        compare("eq", ZERO, 0),
    ),
    "or the first": lambda n: (
        Op("where", (Op("logical_and", (compare("ge", RAW, 0), compare("lt", RAW, n)), "bool"), RAW, ZERO), "int64"),
        compare("eq", ZERO, 0),
    ),
    "a remainder, of which the check leaves a part": lambda n: (
        Op("mod", (RAW, Const(4, "int64")), "int64"),
        Op("logical_and", (compare("ge", Ref("g", "int64"), 0), compare("lt", Ref("g", "int64"), n)), "bool"),
    ),
    "the nearest of what the check lets in": lambda n: (
        Op("min", (RAW, Const(3, "int64")), "int64"),
        Op("logical_and", (compare("ge", RAW, 0), compare("lt", RAW, n)), "bool"),
    ),
    "mirrored": lambda n: (
        Op("sub", (number(index(n) - 1), Op("abs", (RAW,), "int64")), "int64"),
        Op("logical_and", (compare("gt", RAW, number(index(n) * -1)), compare("lt", RAW, n)), "bool"),
    ),
}  # fmt: skip


def value_of(expr, raw, values):
    """What an expression is, where ``raw`` was read."""
    if type(expr) is Ref:
        return raw if expr.name == "raw" else value_of(POSITIONS["a remainder, of which the check leaves a part"](0)[0], raw, values)
    if type(expr) is not Op:
        return expr.value if type(expr) is Const else expr.index.evaluate(values)
    args = [value_of(arg, raw, values) for arg in expr.args]
    meaning = {
        "mod": operator.mod,
        "add": operator.add,
        "sub": operator.sub,
        "min": min,
        "max": max,
        "abs": abs,
        "where": lambda c, a, b: a if c else b,
    }
    meaning |= {name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
    meaning |= {"logical_and": lambda a, b: a and b, "logical_or": lambda a, b: a or b, "logical_not": operator.not_}
    return meaning[expr.name](*args)


@pytest.mark.parametrize("how", POSITIONS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.one_of(positive, st.builds(lambda s, n: index(s) + n, symbols, st.integers(0, 2))),
    factors,
    factors,
    numbers,
    extents,
    numbers,
    numbers,
)
def test_what_is_read_lies_where_checks_let_it(how, size, stride, step, start, columns, s0, s1):
    """For whatever is read: nothing is reached that is not said, and no kernel that stays inside is refused."""
    values = {"s0": s0, "s1": s1}
    position, check = POSITIONS[how](size)
    lets = (Let("raw", Load("a", index(0), "int64")), Let("g", position))
    at = index("g") * stride + index("j") * step + start
    phase = Phase(lets=lets, checks=(Check(check, "IndexError", "outside"),), stores=(Store("out", at, ONE),))
    made = LoopKernel(
        "k", (Buffer("a", "int64", "in", index(1)), Buffer("out", "float32", "out", index(-(10**6)))), (Nest((Axis("j", columns),), (phase,)),), SYMBOLS
    )  # fmt: skip
    (_, most), above = said(made, values)
    extent = columns.evaluate(values)
    if extent < 0:
        assert not above
        return
    read = [raw for raw in range(-9, 10) if value_of(check, raw, values)]
    places = [
        at.evaluate({**values, "g": value_of(position, raw, values), "j": j}) for raw in read for j in range(extent)
    ]  # fmt: skip
    if above:
        assert most != -(10**6) and (not places or (min(places) >= 0 and max(places) < most))
    least = 3 if how == "ignored where it is 2" else 2  # else the last place of all is ignored
    if min(s0, s1) >= 0 and places and size.evaluate(values) > least:
        assert above == (min(places) >= 0) and max(most, 0) == max(max(places) + 1, 0)


def test_an_index_of_which_no_check_tells_is_held_to_the_buffer():
    lets = (Let("p", Load("a", index("i"), "int64")),)
    made = kernel("i", {"i": "s0"}, numel=index("s1"), load=Load("a", index("p"), "float32"), lets=lets)
    assert said(made, {"s0": 4, "s1": 9})[0][0] == 9 and said(made, {"s0": 0, "s1": 9})[0][0] == 0
    checked = Check(
        Op("logical_and", (compare("ge", Ref("p", "int64"), 0), compare("lt", Ref("p", "int64"), "s1")), "bool"), "IndexError", ""
    )
    [nest] = made.nests
    later = Phase(stores=nest.phases[0].stores)
    whole = Phase(lets=lets, checks=(checked,), stores=nest.phases[0].stores)
    inner = Phase(axes=(Axis("j", index("s1")),), checks=(checked,))  # it may have no points
    for phases, most in (((whole,), 3), ((Phase(lets=lets, checks=(checked,)), later), 3), ((Phase(lets=lets), inner, later), 9)):
        kernel_ = LoopKernel("k", made.buffers, (Nest(nest.axes, phases),), SYMBOLS)
        assert said(replace(kernel_, buffers=(replace(made.buffers[0], numel=index(9)), made.buffers[1])), {"s0": 3, "s1": 3})[0][0] == most


MASKS = {  # parts of masks, over axes of s0 and s1 points, and the index behind them
    "a part of a whole": ([("ge", "i", "s1"), ("lt", "i", index("s1") + 2)], (index("i") - index("s1")) * index("s1") + index("j")),
    "with something around": ([("ge", index("i") - 1, 0), ("lt", index("i") - 1, index("s0") - 2)], (index("i") - 1) * index("s1") + index("j")),
    "beyond a constant": ([("lt", "i", 3)], index("i") + 5),
    "one row": ([("eq", "i", 1)], index("j")),
    "the other way around": ([("gt", "s0", "i"), ("le", 1, "i")], index("i") * 2 - 2),
    "of a quotient": ([("lt", floordiv("i", 2), 1)], floordiv("i", 2) * 5 + mod("i", 2)),
    "never": ([("lt", "i", 0)], index("i") - 1),
    "of no points": ([("lt", "i", index("s0") - index("s0") * 2)], index("i") + 3),
    "backwards": ([("lt", "i", "s1")], index("s1") - 1 - index("i")),
}  # fmt: skip


@pytest.mark.parametrize("what", MASKS)
@pytest.mark.parametrize("sizes", list(itertools.product((0, 1, 2, 3, 5), repeat=2)))
def test_what_is_masked_lies_where_the_mask_does(what, sizes):
    """Exactly: what a mask leaves out is not asked for."""
    parts, at = MASKS[what]
    values = dict(zip(SYMBOLS, sizes, strict=True))
    mask = None
    for part in parts:
        mask = compare(*part) if mask is None else Op("logical_and", (mask, compare(*part)), "bool")
    load = Load("a", at, "float32", mask, Const(0.0, "float32"))
    made = kernel("i", {"i": "s0", "j": "s1"}, load=load, numel=-(10**6))
    places = []
    for i, j in itertools.product(*map(range, sizes)):
        point = {**values, "i": i, "j": j}
        if all(getattr(operator, how)(index(a).evaluate(point), index(b).evaluate(point)) for how, a, b in parts):
            places.append(at.evaluate(point))
    (most, _), above = said(made, values)
    assert most != -(10**6) and (not above or not places or (min(places) >= 0 and max(places) < most))
    assert above == (min(places, default=0) >= 0)
    if places:  # a load that does not move with an axis counts without its points
        assert most == max(places) + 1


def test_masks_that_say_something_else_leave_the_buffer():
    flag = Op("gt", (Load("a", index("i"), "float32"), Const(0.0, "float32")), "bool")
    for mask, at in (
        (flag, index("i")),
        (Op("logical_and", (flag, compare("lt", "i", 2)), "bool"), index("i")),
        (compare("lt", index("i") + index("j"), 2), index("i")),
        (compare("lt", floordiv("i", 2), 2), index("i")),  # the quotient is held, and the axis stands beside it
        (compare("ne", "i", 2), index("i")),
    ):
        made = kernel("i", {"i": "s0", "j": "s1"}, load=Load("a", at, "float32", mask, Const(0.0, "float32")), numel=index("s1") * 7)
        assert said(made, {"s0": 4, "s1": 9})[0][0] == 63


def test_a_row_that_is_put_in_order_stores_its_beginning():
    phase = Phase((Axis("j", index(8)),), stores=(Store("out", index("i") * 3 + index("j"), Ref("v", "float32"), first=3),))
    nest = Nest((Axis("i", index("s0")),), (phase,))
    made = LoopKernel("k", (Buffer("out", "float32", "out", index("s0") * 3),), (nest,), ("s0",))
    assert said(made, {"s0": 4}) == ([12], True)


def test_a_buffer_that_nothing_touches_may_be_empty():
    assert said(kernel("i", {"i": "s0"}), {"s0": 4, "s1": 0})[0] == [0, 4]
