"""The Plan's text, bytes and laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_plans import cases, spec

from opmill_runtime_cache.errors import PlanError, PlanFormatError
from opmill_runtime_cache.plan import complaints, decode, encode, parse, render, verify
from opmill_runtime_cache.plan.model import (
    Alloc,
    Call,
    Check,
    ComplexArg,
    Constant,
    Expr,
    Free,
    KernelRef,
    Launch,
    ListArg,
    Literal,
    Named,
    NoneOutput,
    Plan,
    SizeInput,
    Slot,
    SlotOutput,
    TensorInput,
    TensorSpec,
    View,
)

_SIZES = st.one_of(st.integers(-9, 9), st.sampled_from(["s0*128 + 4", "s0", " s0", "7", "-7", "(s0)", "min(s0, 3)//2", "a<=b"]))
_TEXT = st.text(max_size=12)
_LITERALS = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=True), _TEXT).map(Literal)
_LEAVES = st.one_of(
    _LITERALS,
    st.builds(Slot, st.integers(0, 9)),
    st.builds(Expr, _SIZES),
    st.builds(Named, _TEXT, _TEXT),
    st.builds(ComplexArg, st.floats(), st.floats()),
)
_ARGS = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3).map(lambda items: ListArg(tuple(items))), max_leaves=6)
_SPECS = st.builds(
    lambda dims, device: TensorSpec("float32", tuple(a for a, _ in dims), tuple(b for _, b in dims), device),
    st.lists(st.tuples(_SIZES, _SIZES), max_size=3),
    st.sampled_from(["cpu", "cuda:1"]),
)
_STEPS = st.one_of(
    st.builds(Alloc, st.integers(0, 9), _SPECS, st.one_of(st.none(), _SIZES), _TEXT),
    st.builds(lambda s, o, d: View(3, 4, s.sizes, s.strides, o, d), _SPECS, _SIZES, st.sampled_from([None, "int8"])),
    st.builds(
        Launch,
        st.integers(0, 3),
        st.tuples(st.integers(0, 9)),
        st.tuples(_SIZES),
        st.just((0,)),
        st.lists(st.tuples(_TEXT, _TEXT), max_size=2).map(tuple),
        _TEXT,
    ),
    st.builds(
        Call,
        _TEXT,
        st.lists(_ARGS, max_size=3).map(tuple),
        st.dictionaries(_TEXT, _ARGS, max_size=2),
        st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=2).map(tuple),
        _TEXT,
    ),
    st.builds(Check, _SIZES, _TEXT, _TEXT),
    st.builds(Free, st.tuples(st.integers(0, 9), st.integers(0, 9))),
)


def whole(steps=(), **parts) -> Plan:
    return Plan("p", 10, parts.pop("inputs", ()), parts.pop("outputs", ()), tuple(steps), **parts)


@given(st.lists(_STEPS, max_size=4))
def test_text_and_bytes_read_back(steps):
    plan = whole(
        steps,
        inputs=(TensorInput(0, spec("s0", 2), name="a 'b'\n"), SizeInput("s0")),
        outputs=(SlotOutput(0), NoneOutput()),
        constants=(Constant(1, spec(1, 1), b"\x00\xff12"),),
        kernels=(KernelRef("cpu", "cpu-so", "k", "f", {"block": 3, "name": "x"}),),
        arena="s0*4",
    )
    assert encode(parse(render(plan))) == encode(plan)


@given(cases())
def test_random_plans_are_legal_and_read_back(case):
    verify(case.plan)
    assert parse(render(case.plan)) == case.plan
    assert decode(encode(case.plan)) == case.plan


@given(cases(), st.data())
def test_damaged_bytes_never_decode_to_an_illegal_plan(case, data):
    blob = bytearray(encode(case.plan))
    for _ in range(data.draw(st.integers(1, 4))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    try:
        plan = decode(bytes(blob[: data.draw(st.integers(0, len(blob)))]))
    except (PlanFormatError, PlanError):
        return
    assert not list(complaints(plan))


LAWS = {
    "RC011": whole([Alloc(0, spec("s9", 1))]),
    "RC012": whole([Alloc(0, TensorSpec("float31", (1,), (1,)))]),
    "RC013": whole([Alloc(0, TensorSpec("float32", (1,), ()))]),
    "RC014": whole([Free((0,))]),
    "RC015": whole([Alloc(0, spec(1, 1)), Free((0,)), View(1, 0, (1,), (1,))]),
    "RC016": whole([Alloc(77, spec(1, 1))]),
    "RC017": whole([Alloc(0, spec(1, 1)), Alloc(0, spec(1, 1))]),
    "RC018": whole([Alloc(0, spec(1, 1), 32)], arena=128),
    "RC019": whole([Launch(0, ())]),
    "RC020": whole([Launch(0, (), writes=(0,))], kernels=(KernelRef("cpu", "a", "b", "c"),)),
    "RC022": whole(inputs=(SizeInput("a"), SizeInput("a"))),
    "RC029": whole([Alloc(0, TensorSpec("float32", (1,), (1,), "meta"))]),
    "RC024": whole([Alloc(0, spec(1, 1), 0)], outputs=(SlotOutput(0),), arena=64),
}


@pytest.mark.parametrize("code", LAWS)
def test_laws(code):
    assert code in [found for found, _, _ in complaints(LAWS[code])]
    with pytest.raises(PlanError, match=code):
        verify(LAWS[code])
