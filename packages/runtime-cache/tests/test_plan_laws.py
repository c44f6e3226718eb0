"""Plans from outside: what reaches beyond its memory or calls what it may not is refused, when it is read, bound or called."""

import msgspec
import pytest
import torch
from runtime_kernels import kernel
from runtime_plans import spec

from opmill_runtime_cache.errors import PlanError, RuntimeCacheError
from opmill_runtime_cache.executor import bind, bind_reference
from opmill_runtime_cache.plan import decode, encode
from opmill_runtime_cache.plan.model import (
    Alloc,
    Call,
    Constant,
    Expr,
    Free,
    Item,
    KernelRef,
    Launch,
    ListArg,
    Literal,
    Plan,
    SizeInput,
    SizeOf,
    Slot,
    SlotOutput,
    TensorInput,
    TensorSpec,
    View,
)

BINDERS = {"native": bind, "reference": bind_reference}
ROW = TensorSpec("float32", (8,), (1,))
MOVING = TensorSpec("float32", ("s0",), (1,))


def plan(*steps, outputs=(), x=ROW, **parts) -> Plan:
    """A plan of one input, in slot 0."""
    return Plan("p", 10, (TensorInput(0, x), *parts.pop("inputs", ())), tuple(map(SlotOutput, outputs)), steps, **parts)


def loaded(made: Plan, **options) -> Plan:
    return decode(encode(made), **options)


# ---- when it is read ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["s0*2", "lambda", "__import__('os')", ""])
def test_symbols_are_names(name):
    with pytest.raises((RuntimeCacheError), match="RC0(21|05)"):
        loaded(plan(x=TensorSpec("float32", (name,), (1,)), bindings=(SizeOf(name, 0, 0),)))


REFUSED = [
    "aten::from_file", "aten::set_.source_Tensor", "aten::set_.source_Storage", "aten::resize_", "aten::as_strided_", "aten::data",
    "aten::_sparse_coo_tensor_unsafe", "aten::_nested_view_from_buffer", "aten::_print", "aten::requires_grad_", "aten::set_data",
    "aten::squeeze_", "aten::record_stream", "somebody::other", "opmill::unheard", "prims::device_put", "profiler::_record_function_enter",
]  # fmt: skip


@pytest.mark.parametrize("op", REFUSED)
def test_operators_that_may_not_be_called(op):
    made = plan(Call(op, (Slot(0),), {}, (1,)), outputs=(1,))
    with pytest.raises(PlanError, match="RC081"):
        loaded(made)
    assert loaded(made, operators={op}) == loaded(made, operators={op.partition("::")[0] + "::"}) == made


def test_no_file_is_written(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    arguments = (Literal(str(file)), Literal(True), Literal(4096))
    with pytest.raises(PlanError, match="RC081"):
        loaded(plan(Call("aten::from_file", arguments, {}, (1,)), outputs=(1,)))
    assert file.read_bytes() == b"mine"


FRESH = Alloc(1, ROW)
PACKED = TensorInput(1, ROW, held=True, opaque=True)
LAWS = {
    "a view begins before its memory": (plan(FRESH, View(2, 1, (2,), (1,), -1)), "RC018"),
    "a view ends behind its memory": (plan(FRESH, View(2, 1, (8,), (1,), 1)), "RC018"),
    "a view strides out of its memory": (plan(FRESH, View(2, 1, (2, 2), (7, 2))), "RC018"),
    "a view of a view": (plan(FRESH, View(2, 1, (4,), (1,), 4), View(3, 2, (4,), (1,), 1)), "RC018"),
    "a view of wider elements": (plan(FRESH, View(2, 1, (8,), (1,), 0, "float64")), "RC018"),
    "a view inside an element": (plan(FRESH, View(2, 1, (4,), (1,), 1), View(3, 2, (1,), (1,), 0, "float64")), "RC018"),
    "a view of the arena": (plan(Alloc(1, ROW, 0), View(2, 1, (64,), (1,)), arena=128), "RC018"),
    "a view of a constant": (plan(View(2, 1, (8,), (1,)), constants=(Constant(1, spec(1, 1), bytes(4)),)), "RC018"),
    "a negative stride": (plan(FRESH, View(2, 1, (2,), (-1,), 1)), "RC010"),
    "a negative size": (plan(Alloc(1, TensorSpec("float32", (-1,), (1,)))), "RC010"),
    "a span that overflows": (plan(FRESH, View(2, 1, (2**32 + 1, 2**31), (2**32, 1))), "RC010"),
    "an offset that overflows": (plan(FRESH, View(2, 1, (1,), (1,), 2**62)), "RC010"),
    "an allocation that overflows": (plan(Alloc(1, TensorSpec("float32", (2**31, 2**31), (2**31, 1)))), "RC010"),
    "an allocation behind the arena": (plan(Alloc(1, ROW, 64), arena=64), "RC018"),
    "too few bytes of a constant": (plan(constants=(Constant(1, ROW, bytes(31)),)), "RC018"),
    "a constant with gaps": (plan(constants=(Constant(1, TensorSpec("uint8", (4,), (2,)), bytes(4)),)), "RC018"),
    "a view of a freed slot": (plan(FRESH, Free((1,)), View(2, 1, (8,), (1,))), "RC015"),
    "a view that outlives its memory": (plan(FRESH, View(2, 1, (8,), (1,)), Free((1,)), View(3, 2, (8,), (1,))), "RC015"),
    "such a view as an argument": (plan(FRESH, View(2, 1, (8,), (1,)), Free((1,)), Call("aten::relu", (Slot(2),), {}, (3,))), "RC015"),
    "such a view as a result": (plan(FRESH, View(2, 1, (8,), (1,)), Free((1,)), outputs=(2,)), "RC015"),
    "more dimensions than torch has": (plan(Alloc(1, TensorSpec("float32", (1,) * 65, (1,) * 65))), "RC013"),
    "a number of more than 64 bits": (plan(Call("aten::add.Scalar", (Slot(0), Literal(2**63)), {}, (1,))), "RC010"),
    "a view of reordered weights": (plan(View(2, 1, (8,), (1,)), inputs=(PACKED,)), "RC082"),
    "reordered weights as a result": (plan(inputs=(PACKED,), outputs=(1,)), "RC082"),
    "reordered weights of a call": (plan(inputs=(TensorInput(1, ROW, opaque=True),)), "RC082"),
    "a size of reordered weights": (plan(inputs=(PACKED,), bindings=(SizeOf("s0", 1, 0),)), "RC082"),
    "a number in reordered weights": (plan(Item("u0", 1), inputs=(PACKED,)), "RC082"),
    "a kernel by path": (plan(kernels=(KernelRef("cpu", "../..", "key", "entry"),)), "RC021"),
    "an entry that is no name": (plan(kernels=(KernelRef("cpu", "cpu-so", "key", "a b"),)), "RC021"),
}  # fmt: skip


@pytest.mark.parametrize("what", LAWS)
def test_laws_of_memory_and_names(what):
    made, code = LAWS[what]
    with pytest.raises(PlanError, match=code):
        loaded(made)


def test_what_just_fits_is_read(store):
    """The last legal place of each law of memory."""
    fits = plan(
        FRESH,
        Call("aten::copy_", (Slot(1), Slot(0)), {}, (None,)),
        View(2, 1, (4,), (1,), 4),
        View(3, 2, (0,), (9,), 0),
        View(4, 1, (2, 2), (7, 0)),
        View(5, 1, (4,), (1,), 0, "float64"),
        outputs=(2, 3, 4),
    )
    x = torch.randn(8)
    for binder in BINDERS.values():
        tail, empty, corners = binder(loaded(fits), [], store)(x)
        assert torch.equal(tail, x[4:]) and empty.shape == (0,)
        assert torch.equal(corners, x.as_strided((2, 2), (7, 0)))


# ---- when sizes and tensors are known ----------------------------------------------------------------------------------------


@pytest.fixture(params=BINDERS)
def binder(request):
    return BINDERS[request.param]


def refused(made: Plan, binder, store, *inputs) -> None:
    """It can be read, and does not run."""
    known = loaded(made)
    with pytest.raises((RuntimeCacheError, OverflowError), match="RC0(10|40|49|57|58|18)|overflow|too large|64 bit"):
        binder(known, [], store)(*inputs)


@pytest.mark.parametrize("offset,size", [(0, 9), (1, 8), (-1, 2), (2**40, 1), ("s0 - 9", 1), ("s0", 1), (0, "s0 + 1"), (0, "s0*s0*s0")])
def test_views_beyond_the_storage_of_an_input(binder, store, offset, size):
    refused(plan(View(1, 0, (size,), (1,), offset), outputs=(1,), x=MOVING, bindings=(SizeOf("s0", 0, 0),)), binder, store, torch.ones(8))


def test_a_view_may_reach_as_far_as_the_storage_of_an_input(binder, store):
    whole = torch.arange(16.0)
    run = binder(loaded(plan(View(1, 0, (16,), (1,), -4), outputs=(1,))), [], store)
    [got] = run(whole[4:12])
    assert torch.equal(got, whole)


@pytest.mark.parametrize("size", ["n", "n*n", "n + 9223372036854775807", "n*4611686018427387904", "0 - n"])
def test_sizes_of_a_call_that_overflow(binder, store, size):
    """A call gives the number; a span does not fit 64 bits, or its bytes do not."""
    made = plan(Alloc(1, ROW), View(2, 1, (size, size), (size, 1)), outputs=(2,), inputs=(SizeInput("n"),))
    known = loaded(made)
    for value in (2**32, 2**33 + 1, 10**7):
        with pytest.raises((RuntimeCacheError, OverflowError)):
            binder(known, [], store)(torch.ones(8), value)


def launches(size, x=ROW, out=ROW, **parts):
    return plan(Alloc(1, out), Launch(0, (0, 0, 1), (size,), (2,)), outputs=(1,), kernels=(kernel("add"),), x=x, **parts)


@pytest.mark.parametrize("size", [9, 10**7, 2**62])
def test_launches_stay_inside_their_buffers(binder, store, size):
    refused(launches(size), binder, store, torch.ones(8))


@pytest.mark.parametrize("size", ["s0 + 1", "s0*1000000", "s0*s0"])
def test_launches_of_sizes_of_a_call(binder, store, size):
    moving = launches(size, MOVING, MOVING, bindings=(SizeOf("s0", 0, 0),))
    refused(moving, binder, store, torch.ones(8))
    assert torch.equal(bind(launches("s0", MOVING, MOVING, bindings=moving.bindings), [], store)(torch.ones(8))[0], torch.full((8,), 2.0))


def test_a_launch_of_other_buffers(binder, store):
    """A kernel's contract says how many tensors it takes, of which types, and which it writes."""
    good = launches(8)
    step = good.steps[1]
    for other in (
        Launch(0, (0, 1), (8,), (1,)),
        Launch(0, (0, 0, 1), (), (2,)),
        Launch(0, (0, 0, 1), (8,), (1, 2)),
        Launch(0, (0, 0, 1), (8,), ()),
        Launch(0, (0, 0, 1), (8,), (2,), (("ValueError", "x"),)),
    ):
        refused(msgspec.structs.replace(good, steps=(good.steps[0], other)), binder, store, torch.ones(8))
    short = TensorSpec("float16", (8,), (1,))
    refused(msgspec.structs.replace(good, steps=(Alloc(1, short), step)), binder, store, torch.ones(8))


def test_an_argument_that_is_a_size_of_a_call(binder, store):
    """The same checks hold where numbers come with the call: a size that leads outside is refused by torch, none is taken on trust."""
    made = plan(
        Call("aten::as_strided", (Slot(0), ListArg((Expr("n"),)), ListArg((Literal(1),))), {}, (1,)), outputs=(1,), inputs=(SizeInput("n"),)
    )
    run = binder(loaded(made), [], store)
    assert run(torch.ones(8), 8)[0].shape == (8,)
    with pytest.raises((RuntimeError, RuntimeCacheError)):
        run(torch.ones(8), 9)
